//! The end of `uniq` by a signal, a failure or a panic, also while the reader waits for its input.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sievedb::Db;

use super::stages::Stop;
use crate::failure::{Failure, Result, caught, warn};
use crate::interrupt::{on_end_signal, participle};
use crate::lines::Refused;
use crate::units;

#[derive(Default)]
pub(super) struct Ending {
    pub(super) stop: Stop,
    phase: Mutex<Phase>,
    refused: Arc<Refused>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Lines,
    /// Ends after the lines that were read, with this exit code.
    Signalled(i32),
    /// Every line is stored and printed; no stage failed.
    Printed,
}

impl Ending {
    pub(super) fn new(refused: &Arc<Refused>) -> Self {
        Self { refused: Arc::clone(refused), ..Self::default() }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch_signals(self: &Arc<Self>) -> Result<()> {
        let ending = Arc::clone(self);
        on_end_signal(move |code| match std::mem::replace(&mut *ending.phase(), Phase::Signalled(code)) {
            Phase::Lines => ending.stop.request(),
            Phase::Signalled(_) | Phase::Printed => ending.exit(Some(code), ending.stop.take_failure()),
        })
    }

    /// Runs `print`, which counts the printed lines. Then ends the process if there was a signal, or a failure that the reader
    /// may not notice before its next line.
    pub(super) fn finish(&self, db: &Db, print: impl FnOnce(&mut u64) -> Result<()>) {
        let mut lines = 0;
        self.stop.keep(caught(|| print(&mut lines)));
        let signal = {
            let mut phase = self.phase();
            match *phase {
                Phase::Signalled(code) => Some(code),
                _ if self.stop.has_failed() && !self.stop.is_read() => None,
                _ if self.stop.has_failed() => return,
                _ => {
                    *phase = Phase::Printed;
                    return;
                }
            }
        };
        if let Some(code) = signal {
            let lines = units::counted(lines, "line", "lines");
            warn("sievedb", &format!("{} after {lines}", participle(code)));
        }
        let closed = db.clone().close().map_err(Failure::from);
        self.exit(signal, self.stop.take_failure().or(closed.err()))
    }

    /// Reports the lines without a valid key and the failure, and ends the process.
    fn exit(&self, signal: Option<i32>, failure: Option<Failure>) -> ! {
        let refused = self.refused.check().err();
        [&refused, &failure].into_iter().flatten().for_each(|failure| _ = failure.report("sievedb"));
        let code = match exit_code(signal, failure.as_ref()) {
            0 => exit_code(None, refused.as_ref()),
            code => code,
        };
        std::process::exit(code)
    }
}

/// A failure takes precedence over the signal, except a closed pipe.
fn exit_code(signal: Option<i32>, failure: Option<&Failure>) -> i32 {
    match failure.map_or(0, Failure::code) {
        0 => signal.unwrap_or(0),
        code => code.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::commands::uniq::stages::{self, Filled, Pace, Size};

    #[test]
    fn a_failure_counts_more_than_a_signal_except_a_closed_pipe() {
        let cases = [
            (None, Some(Failure::PipeClosed), 0),
            (None, Some(Failure::No), 1),
            (Some(130), None, 130),
            (Some(143), Some(Failure::PipeClosed), 143),
            (Some(143), Some(Failure::Refused(String::new())), 3),
        ];
        for (signal, failure, code) in cases {
            assert_eq!(exit_code(signal, failure.as_ref()), code, "{signal:?} {failure:?}");
        }
    }

    #[derive(Default)]
    struct One(usize);

    impl Size for One {
        fn lines(&self) -> usize {
            self.0
        }

        fn bytes(&self) -> usize {
            self.0
        }
    }

    const PANICS: &str = "SIEVEDB_TEST_PANICS";

    /// Sends one line to the stages, one of which panics, and waits for the next line forever.
    fn run_with_panic(stage: &str) -> ! {
        let db = Db::open("db").unwrap();
        let ending = Ending::default();
        let fill = |lot: &mut One| {
            if lot.0 == 0 && !Path::new("sent").exists() {
                std::fs::write("sent", "").unwrap();
                lot.0 = 1;
                return Ok(Filled::Waits);
            }
            loop {
                std::thread::park();
            }
        };
        let panic_in = |now: &str| assert_ne!(stage, now, "as the test wants");
        let decide = |lot: One| {
            panic_in("decider");
            Ok(lot)
        };
        let pace = Pace { lines_max: 10, one_at_a_time: false, sync_every: Duration::ZERO };
        let ended = stages::run(pace, &ending.stop, fill, decide, |groups| {
            ending.finish(&db, |_| {
                groups.for_each(|_| panic_in("printer"));
                Ok(())
            });
            Ok(())
        });
        panic!("it must not return: {ended:?}");
    }

    /// Runs in a child process, because the process ends.
    #[test]
    fn a_stage_that_panics_ends_the_process_although_the_reader_waits() {
        if let Ok(stage) = std::env::var(PANICS) {
            run_with_panic(&stage);
        }
        let name = "commands::uniq::ending::tests::\
                    a_stage_that_panics_ends_the_process_although_the_reader_waits";
        for stage in ["decider", "printer"] {
            let folder = tempfile::tempdir().unwrap();
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "--nocapture", name]).env(PANICS, stage).current_dir(folder.path());
            let mut child = again.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            while child.try_wait().unwrap().is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ = child.kill();
            let output = child.wait_with_output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(3), "{stage}: {message}");
            let last = "sievedb: internal error: a thread panicked, see above\n";
            assert!(message.contains("as the test wants") && message.ends_with(last), "{stage}: {message}");
        }
    }
}
