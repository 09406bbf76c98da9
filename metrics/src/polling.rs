use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sievedb::Db;

use crate::Reporter;

/// Reports statistics from its own thread, at an interval and when it is dropped. Keeps the store open.
///
/// ```
/// use std::time::Duration;
///
/// # let dir = tempfile::tempdir()?;
/// let db = sievedb::Options::new().latency_histograms(true).open(dir.path())?;
/// let reporter = sievedb_metrics::Reporter::new();
/// let _polling = sievedb_metrics::Polling::start(&db, reporter, Duration::from_secs(10))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Polling {
    /// Dropping it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Polling {
    /// Starts the thread, which reports to the global recorder, at once and then at this interval.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(db: &Db, mut reporter: Reporter, interval: Duration) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let db = db.clone();
        let poll = move || loop {
            reporter.report(&db.stats());
            if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return reporter.report(&db.stats());
            }
        };
        let thread = thread::Builder::new().name("sievedb-metrics".to_owned()).spawn(poll)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // After a panic, nothing more is reported.
            let _ = thread.join();
        }
    }
}
