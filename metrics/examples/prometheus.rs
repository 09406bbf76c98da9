//! A store whose statistics Prometheus scrapes: `curl http://127.0.0.1:9184/metrics`.
//!
//! The exporter is built without its HTTP server.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sievedb::Options;
use sievedb_metrics::{Polling, Reporter};

pub(crate) fn serve(listener: &TcpListener, metrics: &PrometheusHandle) -> std::io::Result<()> {
    for connection in listener.incoming() {
        let mut connection = connection?;
        let request = BufReader::new(&connection).lines().next().transpose()?.unwrap_or_default();
        let (status, page) = match request.strip_prefix("GET /metrics ") {
            Some(_) => ("200 OK", metrics.render()),
            None => ("404 Not Found", String::new()),
        };
        let kind = "text/plain; version=0.0.4";
        let (length, close) = (page.len(), "connection: close");
        write!(
            connection,
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{close}\r\n\r\n{page}"
        )?;
    }
    Ok(())
}

/// Buckets from a quarter of a microsecond to four seconds.
pub(crate) fn exporter() -> Result<PrometheusBuilder, Box<dyn Error>> {
    let buckets: Vec<f64> = (0..13).map(|power| 250e-9 * 4_f64.powi(power)).collect();
    Ok(PrometheusBuilder::new().set_buckets(&buckets)?)
}

#[allow(dead_code, reason = "the test has a main function of its own")]
fn main() -> Result<(), Box<dyn Error>> {
    let metrics = exporter()?.install_recorder()?;
    let dir = std::env::temp_dir().join(format!("sievedb-metrics-{}", std::process::id()));
    let db = Options::new().latency_histograms(true).open(&dir)?;
    let polling = Polling::start(&db, Reporter::new(), Duration::from_secs(1))?;
    for number in 0..100_000_u32 {
        db.insert_if_absent(format!("{number:08}"), "seen")?;
        db.contains(format!("{:08}", number / 2))?;
    }
    if std::env::args().any(|argument| argument == "--serve") {
        let listener = TcpListener::bind("127.0.0.1:9184")?;
        println!("http://{}/metrics", listener.local_addr()?);
        serve(&listener, &metrics)?;
    }
    drop(polling); // reports once more
    let page = metrics.render();
    page.lines()
        .filter(|line| line.contains("_calls_total") || line.contains("_memory_"))
        .for_each(|line| println!("{line}"));
    drop(db);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
