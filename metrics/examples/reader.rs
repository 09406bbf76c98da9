//! The metrics of a store that another process writes to, each second: `cargo run --example reader -- STORE [REPORTS]`.
//!
//! The reader holds no lock, and writes nothing into the store. Without arguments, it reports once on a small store.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use sievedb::{Db, Options};
use sievedb_metrics::Reporter;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = tempfile::tempdir()?;
    let (store, reports) = match arguments.next() {
        Some(store) => (store.into(), arguments.next().map_or(Ok(u64::MAX), |count| count.parse())?),
        None => {
            let store = dir.path().join("store");
            let db = Db::open(&store)?;
            db.put("key", "value")?;
            db.close()?;
            (store, 1)
        }
    };
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
