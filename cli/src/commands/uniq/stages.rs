//! The stages of `uniq`, each in a thread of its own: lines are read, decided, and synced and printed at the same time.
//!
//! 1. The *reader* collects lines in lots. It hands a lot on when the decider is free, when the lot is full, or when the
//!    next line has to be waited for. So lots grow while the decider is busy.
//! 2. The *decider* finds out which lines of a lot are new, and writes these, in one step that needs no sync.
//! 3. The *printer* makes lots durable and prints them, in order: as many at once as were decided since the last sync.
//!    While lines keep coming it syncs once in an interval. If the reader waits for its input and everything is decided,
//!    it does not wait for more.
//!
//! With a limit on lines that may be stored without being printed, a lot has at most that many lines, and the decider
//! waits until the previous lot is printed.
//!
//! A stage that fails ends the stages before it; later stages finish the work that they received.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Result;

/// Lines from which on a lot is handed on as soon as the decider is free.
const LINES_MIN: usize = 1000;

/// Bytes of a lot, and of lots that wait to be printed.
pub(super) const BYTES_MAX: usize = 16 << 20;

/// Lots between two stages.
const QUEUE: usize = 2;

/// How long the printer waits for another lot before it looks whether any is to come.
const PATIENCE: Duration = Duration::from_millis(5);

/// The items passed between stages.
pub(super) trait Size {
    fn lines(&self) -> usize;
    fn bytes(&self) -> usize;
}

/// How lots are cut, and how often they are synced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The most lines of a lot.
    pub(super) lines_max: usize,
    /// Whether a lot is decided only when the one before is printed.
    pub(super) one_at_a_time: bool,
    pub(super) sync_every: Duration,
}

/// The work in progress before the printer: the lots, and the reader unless it waits for its input.
#[derive(Default)]
struct Traffic(AtomicUsize);

impl Traffic {
    fn enter(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// How a lot was filled.
pub(super) enum Filled {
    More,
    /// The next line has to be waited for.
    Waits,
    End,
}

/// Runs all stages to their ends. `fill` adds a line to a lot, in this thread. `print` gets the lots that were decided.
pub(super) fn run<L: Size + Default + Send, D: Size + Send>(
    pace: Pace,
    fill: impl FnMut(&mut L) -> Result<Filled>,
    mut decide: impl FnMut(L) -> Result<D> + Send,
    print: impl FnOnce(Groups<'_, D>) -> Result<()> + Send,
) -> Result<()> {
    let traffic = &Traffic::default();
    let (lots, undecided) = mpsc::sync_channel::<L>(QUEUE);
    let (hands_on, decided) = mpsc::sync_channel::<D>(QUEUE);
    let (prints, printed) = mpsc::channel::<()>();
    let groups = Groups { pace, traffic, decided, prints, given: 0, due: Instant::now() };
    thread::scope(|scope| {
        let decider = scope.spawn(move || -> Result<()> {
            for (number, lot) in undecided.into_iter().enumerate() {
                let is_next = number == 0 || !pace.one_at_a_time || printed.recv().is_ok();
                if !is_next || hands_on.send(decide(lot)?).is_err() {
                    break;
                }
                traffic.leave();
            }
            Ok(())
        });
        let printer = scope.spawn(move || print(groups));
        let read = read_all(pace, traffic, &lots, fill);
        drop(lots);
        let [decided, printed] = [decider, printer]
            .map(|stage| stage.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        printed.and(decided).and(read)
    })
}

fn read_all<L: Size + Default>(
    pace: Pace,
    traffic: &Traffic,
    lots: &SyncSender<L>,
    mut fill: impl FnMut(&mut L) -> Result<Filled>,
) -> Result<()> {
    let (mut lot, mut waits) = (L::default(), true);
    loop {
        let filled = fill(&mut lot);
        if waits {
            traffic.enter();
        }
        waits = matches!(filled, Ok(Filled::Waits));
        let goes_on = matches!(filled, Ok(Filled::More));
        let is_full = lot.lines() >= pace.lines_max || lot.bytes() >= BYTES_MAX;
        let may_go = goes_on && !is_full;
        if lot.lines() > 0 && (!may_go || lot.lines().is_multiple_of(LINES_MIN)) {
            traffic.enter();
            let sent = match may_go {
                true => lots.try_send(std::mem::take(&mut lot)),
                false => {
                    lots.send(std::mem::take(&mut lot)).map_err(|error| TrySendError::Disconnected(error.0))
                }
            };
            match sent {
                Ok(()) => {}
                Err(TrySendError::Full(back)) => {
                    traffic.leave();
                    lot = back;
                }
                // A later stage has failed, and returns why.
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
        if waits {
            traffic.leave();
        }
        if matches!(filled?, Filled::End) {
            return Ok(());
        }
    }
}

/// The lots that were decided, in groups that are synced and printed together. A group is printed when the next one is
/// taken.
pub(super) struct Groups<'t, D> {
    pace: Pace,
    traffic: &'t Traffic,
    decided: Receiver<D>,
    prints: Sender<()>,
    /// Lots in the last group.
    given: usize,
    /// When the next sync may begin, unless there is nothing to wait for.
    due: Instant,
}

impl<D: Size> Iterator for Groups<'_, D> {
    type Item = Vec<D>;

    fn next(&mut self) -> Option<Vec<D>> {
        // The decider may have ended.
        (0..self.given).for_each(|_| _ = self.prints.send(()));
        let first = self.decided.recv().ok()?;
        let (mut bytes, mut group) = (first.bytes(), vec![first]);
        while bytes < BYTES_MAX && !self.pace.one_at_a_time {
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.decided.recv_timeout(left.min(PATIENCE)) {
                Ok(next) => {
                    bytes += next.bytes();
                    group.push(next);
                }
                Err(RecvTimeoutError::Timeout) if !self.traffic.is_idle() => {}
                Err(_) => break,
            }
        }
        self.due = Instant::now() + self.pace.sync_every;
        self.given = group.len();
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::failure::Failure;

    #[derive(Default)]
    struct Numbers(Vec<u32>);

    impl Size for Numbers {
        fn lines(&self) -> usize {
            self.0.len()
        }

        fn bytes(&self) -> usize {
            self.0.len() * 4
        }
    }

    const PACE: Pace = Pace { lines_max: 4000, one_at_a_time: false, sync_every: Duration::from_millis(100) };

    /// Passes so many numbers through all stages; the reader fails at `bad`. Returns what was printed, in groups.
    fn pass(
        pace: Pace,
        numbers: u32,
        bad: Option<u32>,
        decide: impl FnMut(Numbers) -> Result<Numbers> + Send,
    ) -> (Vec<Vec<Numbers>>, Result<()>) {
        let (mut next, groups) = (0, Mutex::new(Vec::new()));
        let fill = |lot: &mut Numbers| {
            if bad == Some(next) {
                return Err(Failure::No);
            }
            if next == numbers {
                return Ok(Filled::End);
            }
            lot.0.push(next);
            next += 1;
            Ok(Filled::More)
        };
        let result = run(pace, fill, decide, |all| {
            all.for_each(|group| groups.lock().unwrap().push(group));
            Ok(())
        });
        (groups.into_inner().unwrap(), result)
    }

    fn flat(groups: &[Vec<Numbers>]) -> Vec<u32> {
        groups.iter().flatten().flat_map(|lot| lot.0.iter().copied()).collect()
    }

    #[test]
    fn everything_is_printed_in_order_in_lots_that_are_not_too_large() {
        for numbers in [0, 1, 999, 1000, 4000, 50_001] {
            let (groups, result) = pass(PACE, numbers, None, Ok);
            result.unwrap();
            assert!(flat(&groups).into_iter().eq(0..numbers), "{numbers}");
            assert!(groups.iter().flatten().all(|lot| (1..=4000).contains(&lot.0.len())));
        }
    }

    #[test]
    fn lots_grow_while_the_decider_is_busy() {
        let (reads, has_read) = mpsc::channel::<()>();
        let mut reads = Some(reads);
        let (mut next, mut sizes) = (0, Vec::new());
        let fill = |lot: &mut Numbers| {
            if next == 20_000 {
                reads = None;
                return Ok(Filled::End);
            }
            next += 1;
            lot.0.push(next);
            Ok(Filled::More)
        };
        let decided = &mut sizes;
        // The first lot is decided when everything has been read.
        let wait = move |lot: Numbers| {
            _ = has_read.recv_timeout(Duration::from_secs(60));
            decided.push(lot.0.len());
            Ok(lot)
        };
        let pace = Pace { lines_max: 1 << 20, ..PACE };
        run(pace, fill, wait, |groups| {
            groups.for_each(drop);
            Ok(())
        })
        .unwrap();
        assert!(sizes.len() <= 4 + QUEUE && sizes.iter().max().unwrap() > &10_000, "{sizes:?}");
    }

    #[test]
    fn one_at_a_time_nothing_is_decided_before_the_last_lot_is_printed() {
        let under_way = AtomicUsize::new(0);
        let pace = Pace { lines_max: 7, one_at_a_time: true, ..PACE };
        let mut next = 0;
        let fill = |lot: &mut Numbers| {
            next += 1;
            lot.0.push(next);
            Ok(if next == 100 { Filled::End } else { Filled::More })
        };
        let decide = |lot: Numbers| {
            assert_eq!(under_way.fetch_add(1, Ordering::SeqCst), 0);
            Ok(lot)
        };
        let mut sizes = Vec::new();
        run(pace, fill, decide, |groups| {
            for group in groups {
                sizes.extend(group.iter().map(Numbers::lines));
                under_way.fetch_sub(group.len(), Ordering::SeqCst);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (15, 100));
    }

    #[test]
    fn what_came_before_a_failure_is_printed_and_the_failure_of_the_last_stage_counts() {
        let (groups, result) = pass(PACE, 9000, Some(8500), Ok);
        assert!(matches!(result, Err(Failure::No)) && flat(&groups).len() == 8500);
        let (groups, result) =
            pass(PACE, 50_000, None, |lot| if lot.0[0] < 8000 { Ok(lot) } else { Err(Failure::PipeClosed) });
        assert!(matches!(result, Err(Failure::PipeClosed)) && flat(&groups).len() >= 8000);
        let endless = |lot: &mut Numbers| {
            lot.0.push(0);
            Ok(Filled::More)
        };
        let result = run(PACE, endless, Ok, |mut groups| groups.next().map_or(Ok(()), |_| Err(Failure::No)));
        assert!(matches!(result, Err(Failure::No)));
    }

    #[test]
    fn a_line_after_which_the_reader_waits_is_printed_before_the_next_one_comes() {
        let (prints, printed) = mpsc::channel();
        let mut number = 0;
        let fill = |lot: &mut Numbers| {
            if number > 0 {
                assert_eq!(printed.recv_timeout(Duration::from_secs(60)), Ok(number));
            }
            number += 1;
            lot.0.push(number);
            Ok(if number == 5 { Filled::End } else { Filled::Waits })
        };
        // So rarely that the test would fail if it was waited for.
        let pace = Pace { sync_every: Duration::from_secs(600), ..PACE };
        run(pace, fill, Ok, |groups| {
            groups.flatten().for_each(|lot| _ = prints.send(lot.0[0]));
            Ok(())
        })
        .unwrap();
    }
}
