//! The metrics of a store that another process writes to, each second: `cargo run --example reader -- STORE [REPORTS]`.
//!
//! The reader takes no lock, and writes nothing into the store.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use sievedb::Options;
use sievedb_metrics::Reporter;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().ok_or("usage: reader STORE [REPORTS]")?;
    let reports: u64 = arguments.next().map_or(Ok(u64::MAX), |count| count.parse())?;
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let mut reporter = Reporter::new();
    let mut db = Options::new().read_only().open(store)?;
    for number in 0..reports {
        if number > 0 {
            std::thread::sleep(Duration::from_secs(1));
        }
        match db.refresh() {
            // The writer was faster; the next attempt may succeed.
            Err(sievedb::Error::Changed { .. }) => {}
            refreshed => drop(refreshed?),
        }
        reporter.report(&db.stats());
        println!("{}", metrics.render());
    }
    Ok(())
}
