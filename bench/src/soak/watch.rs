//! The current call of each thread, and counts of calls. A call is *stuck* if it takes longer than [`STUCK`] since the
//! last fault was disarmed. Time counts in proportion to the program's share of the processor time that it needs
//! ([`Served`]). In a deadlock it needs none, and the time counts in full.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::faults::Weather;

pub(super) const STUCK: Duration = Duration::from_secs(5);

const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Put,
    Delete,
    Batch,
    PutSynced,
    BatchSynced,
    Sync,
    Get,
    MultiGet,
    Contains,
    MayContain,
    Prefix,
    RangeBackward,
    Snapshot,
    SnapshotRead,
    Iterate,
    Flush,
    Compact,
    Refilter,
    SetOptions,
    CreateKeyspace,
    DropKeyspace,
    Stats,
    Verify,
    Open,
    OpenSecond,
    Close,
    Compare,
}

impl Call {
    pub(super) const ALL: [(Self, &'static str, u64); 27] = [
        (Self::Put, "put", 220),
        (Self::Delete, "delete", 70),
        (Self::Batch, "batch over keyspaces", 110),
        (Self::PutSynced, "put, synced", 25),
        (Self::BatchSynced, "batch, synced", 15),
        (Self::Sync, "sync", 4),
        (Self::Get, "get", 240),
        (Self::MultiGet, "multi_get", 50),
        (Self::Contains, "contains", 60),
        (Self::MayContain, "may_contain", 60),
        (Self::Prefix, "prefix", 50),
        (Self::RangeBackward, "range, backward", 40),
        (Self::Snapshot, "snapshot", 12),
        (Self::SnapshotRead, "read of a snapshot", 16),
        (Self::Iterate, "iterator, to its end", 12),
        (Self::Flush, "flush", 3),
        (Self::Compact, "compact", 1),
        (Self::Refilter, "refilter", 1),
        (Self::SetOptions, "set_options", 1),
        (Self::CreateKeyspace, "keyspace, created", 3),
        (Self::DropKeyspace, "drop_keyspace", 2),
        (Self::Stats, "stats", 4),
        (Self::Verify, "verify", 1),
        (Self::Open, "open", 0),
        (Self::OpenSecond, "open, while it is open", 0),
        (Self::Close, "close", 0),
        (Self::Compare, "comparison with the model", 0),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
    /// The longest call without an armed fault: counted and elapsed time.
    pub(super) longest: AtomicU64,
    pub(super) longest_elapsed: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    call: AtomicUsize,
    /// In counted nanoseconds; 0 between two calls.
    began: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Watch {
    weather: Arc<Weather>,
    slots: Vec<Slot>,
    pub(super) counts: [Count; Call::ALL.len()],
    counted: AtomicU64,
    calm_from: AtomicU64,
    ended: AtomicBool,
    scene: Mutex<String>,
}

impl Watch {
    pub(super) fn new(weather: &Arc<Weather>, threads: usize) -> Arc<Self> {
        Arc::new(Self {
            weather: Arc::clone(weather),
            slots: (0..=threads).map(|_| Slot::default()).collect(),
            counts: Default::default(),
            counted: AtomicU64::new(1),
            calm_from: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            scene: Mutex::default(),
        })
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::SeqCst)
    }

    pub(super) fn set_scene(&self, scene: String) {
        *self.scene.lock().unwrap_or_else(PoisonError::into_inner) = scene;
    }

    pub(super) fn scene(&self) -> String {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn during<T>(&self, thread: usize, call: Call, work: impl FnOnce() -> T) -> T {
        let slot = &self.slots[thread.min(self.slots.len() - 1)];
        slot.call.store(call as usize, Ordering::SeqCst);
        let (began, elapsed) = (self.counted(), Instant::now());
        slot.began.store(began, Ordering::SeqCst);
        let calm = self.weather.calm();
        let result = work();
        slot.began.store(0, Ordering::SeqCst);
        if calm.is_some() && self.weather.calm() == calm {
            let counts = &self.counts[call as usize];
            counts.longest.fetch_max(self.counted() - began, Ordering::SeqCst);
            counts.longest_elapsed.fetch_max(elapsed.elapsed().as_nanos() as u64, Ordering::SeqCst);
        }
        result
    }

    pub(super) fn controller(&self) -> usize {
        self.slots.len() - 1
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn watch(&self) -> Option<String> {
        let mut served = Served::now();
        while !self.ended.load(Ordering::SeqCst) {
            std::thread::sleep(TICK);
            let now = Served::now();
            let counts = now.since(&served);
            served = now;
            if self.look(counts) > STUCK {
                return Some(self.describe());
            }
        }
        None
    }

    fn look(&self, passed: Duration) -> Duration {
        let now =
            self.counted.fetch_add(passed.as_nanos() as u64, Ordering::SeqCst) + passed.as_nanos() as u64;
        if self.weather.calm().is_none() {
            self.calm_from.store(now, Ordering::SeqCst);
            return Duration::ZERO;
        }
        let from = self.calm_from.load(Ordering::SeqCst);
        let began =
            self.slots.iter().map(|slot| slot.began.load(Ordering::SeqCst)).filter(|began| *began > 0);
        Duration::from_nanos(began.map(|began| now.saturating_sub(began.max(from))).max().unwrap_or(0))
    }

    fn describe(&self) -> String {
        let now = self.counted();
        let mut text = format!("a call has been stuck for {STUCK:?} without an armed fault\n");
        let _ = writeln!(text, "  {}", self.scene());
        for (thread, slot) in self.slots.iter().enumerate() {
            let name = Call::ALL[slot.call.load(Ordering::SeqCst)].1;
            let _ = match slot.began.load(Ordering::SeqCst) {
                0 => writeln!(text, "  thread {thread}: last {name}"),
                began => writeln!(
                    text,
                    "  thread {thread}: {name} for {:.1} s",
                    now.saturating_sub(began) as f64 / 1e9
                ),
            };
        }
        text
    }
}

#[derive(Debug)]
struct Served {
    at: Instant,
    /// Nanoseconds that each thread ran and waited to run.
    threads: BTreeMap<OsString, [u64; 2]>,
}

impl Served {
    fn now() -> Self {
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
            (thread.file_name(), [(); 2].map(|()| numbers.next().unwrap_or(0)))
        });
        Self { threads: threads.collect(), at: Instant::now() }
    }

    /// The time of the threads that exist now: those that have ended would make it negative.
    fn spent_since(&self, before: &Self, which: usize) -> f64 {
        let spent = |(thread, times): (&OsString, &[u64; 2])| {
            times[which].saturating_sub(before.threads.get(thread).map_or(0, |times| times[which]))
        };
        Duration::from_nanos(self.threads.iter().map(spent).sum()).as_secs_f64()
    }

    /// Returns the counted part of the time since `before`: processor time used divided by time needed. The latter is
    /// at most the time of all processors.
    fn since(&self, before: &Self) -> Duration {
        let passed = self.at.duration_since(before.at);
        let [got, waited] = [0, 1].map(|which| self.spent_since(before, which));
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let wanted = (got + waited).min(processors * passed.as_secs_f64());
        if wanted < passed.as_secs_f64() / 10.0 { passed } else { passed.mul_f64((got / wanted).min(1.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::faults::Fault;

    #[test]
    fn a_long_call_is_stuck_only_from_when_the_last_fault_was_disarmed() {
        let weather = Weather::new(1);
        let watch = Watch::new(&weather, 1);
        let hour = Duration::from_secs(3600);
        watch.during(0, Call::Get, || {
            assert_eq!(watch.look(hour), hour);
            assert!(watch.describe().contains("thread 0: get for 3600"));
            weather.arm(Fault::NoSpace, 1);
            assert_eq!(watch.look(hour), Duration::ZERO);
            weather.disarm();
            assert_eq!(watch.look(Duration::from_secs(1)), Duration::from_secs(1));
        });
        assert_eq!(watch.look(hour), Duration::ZERO, "nobody does anything");
        assert_eq!(Call::ALL.iter().map(|(_, _, weight)| weight).sum::<u64>(), 1000);
        assert!(Call::ALL.iter().enumerate().all(|(at, (call, ..))| *call as usize == at));
    }

    #[test]
    fn time_counts_by_the_share_of_the_processors_that_the_program_got() {
        let seconds = Duration::from_secs;
        let begun = Instant::now();
        let served = |at, threads: &[(&str, [u64; 2])]| {
            let in_nanos = |times: [u64; 2]| times.map(|seconds| seconds * 1_000_000_000);
            let threads = threads.iter().map(|(thread, times)| (OsString::from(*thread), in_nanos(*times)));
            Served { at: begun + seconds(at), threads: threads.collect() }
        };
        let before = served(0, &[("one", [5, 5]), ("two", [50, 50])]);
        let counts = |threads: &[_]| served(10, threads).since(&before);
        assert_eq!(counts(&[("one", [5, 5]), ("two", [50, 50])]), seconds(10), "all wait for each other");
        assert_eq!(counts(&[("one", [7, 5]), ("two", [50, 50])]), seconds(10), "nobody is in the way");
        assert_eq!(counts(&[("one", [6, 9]), ("two", [50, 50])]), seconds(2), "one of five seconds");
        assert_eq!(counts(&[("one", [6, 9])]), seconds(2), "the other thread has ended");
        assert_eq!(counts(&[("one", [5, 5]), ("new", [1, 4])]), seconds(2), "a thread has begun");
    }
}
