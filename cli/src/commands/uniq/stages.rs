//! The stages of `uniq`, each in its own thread.
//!
//! 1. The *reader* collects lines in lots. It passes on a lot when the decider is free, when the lot is full, or before it
//!    waits for the next line. So lots grow while the decider is busy.
//! 2. The *decider* writes the new lines of a lot, in one step that needs no sync.
//! 3. The *printer* makes lots durable and prints them, in order: all that were decided since the last sync. While lines keep
//!    coming, it syncs once per interval. If the reader waits for its input and everything is decided, it syncs at once.
//!
//! With a limit on stored but unprinted lines, a lot has at most that many lines, and the decider waits until the previous lot is
//! printed.
//!
//! A stage that fails or panics ends the stages before it; later stages finish the work that they received. Its failure is
//! first stored in the [`Stop`], so the last stage can see it.
//!
//! A [`Stop`] ends the input: lines that were read are decided and printed. The decider does not wait for a reader that waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result, caught};

/// From this many lines on, a lot is passed on when the decider is free.
const LINES_MIN: usize = 1000;

/// A lot with this many bytes is full. The store needs four times the disk space of a lot.
const LOT_BYTES_MAX: usize = 1 << 20;

/// Lots with this many bytes in total are printed together.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Lots between two stages.
const QUEUE: usize = 2;

/// The printer's wait for another lot before it checks whether any is to come.
const PATIENCE: Duration = Duration::from_millis(5);

pub(super) trait Size {
    fn lines(&self) -> usize;
    fn bytes(&self) -> usize;
}

/// The size of lots and the interval between syncs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) lines_max: usize,
    pub(super) one_at_a_time: bool,
    pub(super) sync_every: Duration,
}

/// The work in progress before the printer: lots, and a reader that is not waiting.
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

/// A request of another thread to end the input, and the failure of a stage.
#[derive(Default)]
pub(super) struct Stop {
    is_requested: AtomicBool,
    /// The decider must end now.
    is_immediate: AtomicBool,
    /// Wakes the decider.
    wake: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// The reader has ended.
    is_read: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl Stop {
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Some(wake) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }

    fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }

    fn is_immediate(&self) -> bool {
        self.is_immediate.load(Ordering::SeqCst)
    }

    fn wake_with(&self, wake: Option<Box<dyn Fn() + Send>>) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = wake;
    }

    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::SeqCst)
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the failure with the greatest exit code, and the first of equal ones, with the notes of all. A failed store
    /// takes precedence over an invalid line.
    pub(super) fn keep(&self, result: Result<()>) {
        let Err(failure) = result else { return };
        let mut kept = self.failure();
        *kept = match kept.take() {
            Some(first) if first.code() == failure.code() => Some(first.with_notes_of(failure)),
            Some(first) if first.code() > failure.code() => Some(first),
            _ => Some(failure),
        };
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    pub(super) fn take_failure(&self) -> Option<Failure> {
        self.failure().take()
    }
}

/// Releases the sender that wakes the decider, also when the reader panics.
struct Waking<'s>(&'s Stop);

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        self.0.wake_with(None);
    }
}

pub(super) enum Filled {
    More,
    /// The reader must wait for the next line.
    Waits,
    End,
}

/// Runs all stages. `fill` adds a line to a lot, in this thread. `print` gets the decided lots.
pub(super) fn run<L: Size + Default + Send + 'static, D: Size + Send>(
    pace: Pace,
    stop: &Stop,
    fill: impl FnMut(&mut L) -> Result<Filled>,
    mut decide: impl FnMut(L) -> Result<D> + Send,
    print: impl FnOnce(&mut Groups<'_, D>) -> Result<()> + Send,
) -> Result<()> {
    let traffic = &Traffic::default();
    // `None` wakes the decider.
    let (lots, undecided) = mpsc::sync_channel::<Option<L>>(QUEUE);
    let (hands_on, decided) = mpsc::sync_channel::<D>(QUEUE);
    let (prints, printed) = mpsc::channel::<()>();
    let mut groups = Groups { pace, traffic, stop, decided, prints, given: 0, due: Instant::now() };
    let wakes = lots.clone();
    // If the queue is full, the decider is awake.
    stop.wake_with(Some(Box::new(move || _ = wakes.try_send(None))));
    let waking = Waking(stop);
    thread::scope(|scope| {
        // Each stage keeps its failure before it closes its channels.
        let decider = scope.spawn(move || {
            let lots = std::iter::from_fn(|| next_lot(&undecided, traffic, stop));
            for (number, lot) in lots.enumerate() {
                let is_next = number == 0 || !pace.one_at_a_time || printed.recv().is_ok();
                if !is_next {
                    break;
                }
                let decided = match caught(|| decide(lot)) {
                    Ok(decided) => decided,
                    Err(failure) => return stop.keep(Err(failure)),
                };
                if hands_on.send(decided).is_err() {
                    break;
                }
                traffic.leave();
            }
        });
        let printer = scope.spawn(move || stop.keep(caught(|| print(&mut groups))));
        stop.keep(read_all(pace, stop, traffic, &lots, fill));
        stop.is_read.store(true, Ordering::SeqCst);
        drop((lots, waking));
        for stage in [decider, printer] {
            stage.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    stop.take_failure().map_or(Ok(()), Err)
}

/// The next lot for the decider; `None` at the end, or after a stop when everything that was read is decided.
fn next_lot<L>(undecided: &Receiver<Option<L>>, traffic: &Traffic, stop: &Stop) -> Option<L> {
    loop {
        if stop.is_immediate() {
            return None;
        }
        let received = match stop.is_requested() {
            true => undecided.recv_timeout(PATIENCE),
            false => undecided.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(Some(lot)) => return Some(lot),
            Err(RecvTimeoutError::Disconnected) => return None,
            Ok(None) | Err(RecvTimeoutError::Timeout) if stop.is_requested() && traffic.is_idle() => {
                return None;
            }
            Ok(None) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn read_all<L: Size + Default>(
    pace: Pace,
    stop: &Stop,
    traffic: &Traffic,
    lots: &SyncSender<Option<L>>,
    mut fill: impl FnMut(&mut L) -> Result<Filled>,
) -> Result<()> {
    let (mut lot, mut waits) = (L::default(), true);
    loop {
        let filled = fill(&mut lot);
        if waits {
            traffic.enter();
        }
        waits = matches!(filled, Ok(Filled::Waits));
        let is_stopped = stop.is_requested();
        let goes_on = matches!(filled, Ok(Filled::More)) && !is_stopped;
        let is_full = lot.lines() >= pace.lines_max || lot.bytes() >= LOT_BYTES_MAX;
        let may_go = goes_on && !is_full;
        if lot.lines() > 0 && (!may_go || lot.lines().is_multiple_of(LINES_MIN)) {
            traffic.enter();
            let taken = Some(std::mem::take(&mut lot));
            let sent = match may_go {
                true => lots.try_send(taken),
                false => lots.send(taken).map_err(|error| TrySendError::Disconnected(error.0)),
            };
            match sent {
                Ok(()) => {}
                Err(TrySendError::Full(back)) => {
                    traffic.leave();
                    lot = back.unwrap_or_default();
                }
                // A later stage has failed and returns the reason.
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
        if waits {
            traffic.leave();
        }
        if matches!(filled?, Filled::End) || is_stopped {
            return Ok(());
        }
    }
}

/// The decided lots in groups that are synced and printed together. Taking the next group marks the last one as printed.
pub(super) struct Groups<'t, D> {
    pace: Pace,
    traffic: &'t Traffic,
    stop: &'t Stop,
    decided: Receiver<D>,
    prints: Sender<()>,
    /// Lots in the last group.
    given: usize,
    /// The earliest time of the next sync if more lots are to come.
    due: Instant,
}

impl<D> Groups<'_, D> {
    pub(super) fn note_failure(&self, note: impl FnOnce() -> String) {
        let mut kept = self.stop.failure();
        *kept = kept.take().map(|failure| failure.with_note(note()));
    }

    /// Ends the decider. Returns the lots that it has decided since the last group.
    pub(super) fn end(&mut self) -> Vec<D> {
        self.stop.is_immediate.store(true, Ordering::SeqCst);
        self.stop.wake();
        // The decider may wait until its previous lot is printed.
        self.prints = mpsc::channel().0;
        self.decided.iter().collect()
    }
}

impl<D: Size> Iterator for Groups<'_, D> {
    type Item = Vec<D>;

    fn next(&mut self) -> Option<Vec<D>> {
        if self.pace.one_at_a_time {
            // The decider may have ended.
            (0..self.given).for_each(|_| _ = self.prints.send(()));
        }
        let first = self.decided.recv().ok()?;
        let (mut bytes, mut group) = (first.bytes(), vec![first]);
        while bytes < GROUP_BYTES_MAX && !self.pace.one_at_a_time {
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

    /// Passes this many numbers through all stages; the reader fails at `bad`. Returns the printed groups.
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
        let result = run(pace, &Stop::default(), fill, decide, |all| {
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
        run(pace, &Stop::default(), fill, wait, |groups| {
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
        run(pace, &Stop::default(), fill, decide, |groups| {
            for group in groups {
                sizes.extend(group.iter().map(Numbers::lines));
                under_way.fetch_sub(group.len(), Ordering::SeqCst);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (15, 100));
    }

    /// If no decider waited, one message per lot would be kept to the end.
    #[test]
    fn a_printed_lot_is_reported_only_to_a_decider_that_waits_for_it() {
        for one_at_a_time in [false, true] {
            let (traffic, stop) = (&Traffic::default(), &Stop::default());
            let (hands_on, decided) = mpsc::sync_channel(1);
            let (prints, printed) = mpsc::channel();
            let pace = Pace { one_at_a_time, ..PACE };
            let groups = Groups { pace, traffic, stop, decided, prints, given: 0, due: Instant::now() };
            hands_on.send(Numbers(vec![1])).unwrap();
            drop(hands_on);
            assert_eq!(groups.count(), 1);
            assert_eq!(printed.iter().count(), usize::from(one_at_a_time));
        }
    }

    #[test]
    fn what_came_before_a_failure_is_printed_and_the_failure_is_returned() {
        let (groups, result) = pass(PACE, 9000, Some(8500), Ok);
        assert!(matches!(result, Err(Failure::No)) && flat(&groups).len() == 8500);
        let (groups, result) =
            pass(PACE, 50_000, None, |lot| if lot.0[0] < 8000 { Ok(lot) } else { Err(Failure::PipeClosed) });
        assert!(matches!(result, Err(Failure::PipeClosed)) && flat(&groups).len() >= 8000);
        let endless = |lot: &mut Numbers| {
            lot.0.push(0);
            Ok(Filled::More)
        };
        let end = |groups: &mut Groups<'_, _>| groups.next().map_or(Ok(()), |_| Err(Failure::No));
        let result = run(PACE, &Stop::default(), endless, Ok, end);
        assert!(matches!(result, Err(Failure::No)));
    }

    #[test]
    fn after_the_printer_ends_the_decider_nothing_more_is_decided() {
        for one_at_a_time in [false, true] {
            let (ends, has_ended) = mpsc::channel::<()>();
            let (mut next, decided, returned) = (0, AtomicUsize::new(0), AtomicUsize::new(0));
            let fill = |lot: &mut Numbers| {
                lot.0.push(next);
                next += 1;
                if next == 60_000 {
                    has_ended.recv_timeout(Duration::from_secs(60)).unwrap();
                }
                Ok(Filled::More)
            };
            let decide = |lot: Numbers| {
                decided.fetch_add(lot.lines(), Ordering::SeqCst);
                Ok(lot)
            };
            let pace = Pace { lines_max: 1000, one_at_a_time, sync_every: Duration::ZERO };
            let result = run(pace, &Stop::default(), fill, decide, |groups| {
                let lots = groups.next().into_iter().flatten().chain(groups.end());
                returned.store(lots.map(|lot| lot.lines()).sum(), Ordering::SeqCst);
                ends.send(()).unwrap();
                Err(Failure::No)
            });
            assert!(matches!(result, Err(Failure::No)));
            assert_eq!(decided.into_inner(), returned.into_inner(), "{one_at_a_time}");
        }
    }

    #[test]
    fn the_failure_of_another_stage_is_kept_before_the_printer_ends() {
        for is_reader in [true, false] {
            let (stop, mut has_failed) = (&Stop::default(), false);
            let fill = |lot: &mut Numbers| {
                lot.0.push(0);
                if is_reader { Err(Failure::No) } else { Ok(Filled::More) }
            };
            let decide = |lot: Numbers| if is_reader { Ok(lot) } else { Err(Failure::No) };
            let result = run(PACE, stop, fill, decide, |groups| {
                groups.for_each(drop);
                has_failed = stop.has_failed();
                Ok(())
            });
            assert!(matches!(result, Err(Failure::No)) && has_failed, "{is_reader}");
        }
    }

    #[test]
    fn a_store_that_failed_counts_more_than_a_line_that_is_not_valid_or_a_closed_pipe() {
        let stop = Stop::default();
        for failure in [Failure::PipeClosed, Failure::Usage("line".into()), Failure::Refused("store".into())]
        {
            stop.keep(Err(failure));
        }
        let later = Failure::Refused("later".into()).with_note("counts").with_note("advice");
        for later in [
            Err(later),
            Err(Failure::Usage("line".into()).with_note("line")),
            Err(Failure::PipeClosed),
            Ok(()),
        ] {
            stop.keep(later);
        }
        assert_eq!(stop.take_failure().unwrap().to_string(), "store; counts; advice");
    }

    #[test]
    fn a_reader_that_panics_ends_the_other_stages() {
        let run = || {
            let fill = |_: &mut Numbers| -> Result<Filled> { panic!("expected") };
            run(PACE, &Stop::default(), fill, Ok, |groups| {
                groups.for_each(drop);
                Ok(())
            })
        };
        assert!(std::panic::catch_unwind(run).is_err());
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
        // The test would fail if a line waited for the next sync.
        let pace = Pace { sync_every: Duration::from_secs(600), ..PACE };
        run(pace, &Stop::default(), fill, Ok, |groups| {
            groups.flatten().for_each(|lot| _ = prints.send(lot.0[0]));
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_stopped_input_ends_after_the_lines_that_were_read_also_if_the_reader_waits() {
        // At 0 the reader never waits. Otherwise it waits after this number, until everything is printed.
        for waits_at in [0, 1, 2500] {
            let (stop, ends) = (&Stop::default(), &AtomicBool::new(false));
            let (mut next, mut numbers) = (0, Vec::new());
            let fill = |lot: &mut Numbers| {
                assert!(next < 1 << 24, "it is not stopped");
                while waits_at > 0 && next == waits_at && !ends.load(Ordering::SeqCst) {
                    stop.request();
                    thread::sleep(Duration::from_millis(1));
                }
                if waits_at == 0 && next == 7000 {
                    stop.request();
                }
                if ends.load(Ordering::SeqCst) && waits_at > 0 {
                    return Ok(Filled::End);
                }
                lot.0.push(next);
                next += 1;
                Ok(if next == waits_at { Filled::Waits } else { Filled::More })
            };
            run(PACE, stop, fill, Ok, |groups| {
                groups.flatten().for_each(|lot| numbers.extend(lot.0));
                ends.store(true, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
            let expected = if waits_at == 0 { 7001 } else { waits_at };
            assert!(numbers.into_iter().eq(0..expected), "{waits_at}");
        }
    }
}
