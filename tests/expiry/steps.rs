//! Ids pass through a window of a day in a process whose clock is stepped forward and back, by less and by more than the time
//! to live. The process is killed in calls and after calls, and closed in order. Each answer is compared with an exact model.
//! There are no background threads, so horizons rise with the calls.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use sievedb::{Db, KeyspaceOptions, Options, SimulatedClock};

use super::{MINUTE, START};
use crate::support::rng::Rng;
use crate::support::sample::thorough;

const BUCKET: u64 = 60 * MINUTE;
const BUCKETS: u64 = 24;
const TTL: u64 = BUCKETS * BUCKET;
const NOW: u64 = START + 1000 * TTL;

/// Directory, and time at the start.
const CHILD: &str = "SIEVEDB_STEPS_TEST_CHILD";
const TIME: &str = "SIEVEDB_STEPS_TEST_TIME";

fn id(number: u32) -> [u8; 16] {
    let mut rng = Rng::new(u64::from(number) << 20);
    ((u128::from(rng.next()) << 64) | u128::from(rng.next())).to_be_bytes()
}

/// The number of the id of an event: one in four repeats an earlier one, mostly of the last day and a half.
fn number(event: u32, per_window: u32) -> u32 {
    let mut rng = Rng::new(u64::from(event));
    match rng.below(16) {
        0..3 => event - rng.below(u64::from(event.min(per_window * 3 / 2)) + 1) as u32,
        3 => event - rng.below(u64::from(event.min(4 * per_window)) + 1) as u32,
        _ => event,
    }
}

fn open(dir: &Path, clock: &SimulatedClock) -> Db {
    let options = Options::new().memory_budget(8 << 20).background_threads(0).clock(clock.clone());
    options.open(dir).unwrap()
}

/// Executes calls: milliseconds by which the clock advances, the time to which it is stepped or 0, first event, end, events in
/// a window. Without the variable, returns at once.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let clock = SimulatedClock::at(std::env::var(TIME).unwrap().parse().unwrap());
    let db = open(Path::new(&dir), &clock);
    let day = KeyspaceOptions::new().memtable_bytes(256 << 10).table_bytes(1 << 20);
    let ids = db.keyspace("ids", day.ttl(Duration::from_millis(TTL)).ttl_buckets(BUCKETS)).unwrap();
    say("ready");
    for line in std::io::stdin().lines() {
        let words: Vec<u64> = line.unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
        let [advance, step, first, end, per_window] = words[..] else {
            say(&format!("count {}", ids.len().unwrap()));
            continue;
        };
        clock.advance(Duration::from_millis(advance));
        if step > 0 {
            clock.step_to(step);
        }
        let events = first as u32..end as u32;
        let new =
            ids.insert_new_many(events.map(|event| (id(number(event, per_window as u32)), ""))).unwrap();
        say(&format!("new {}", new.iter().map(|is_new| if is_new { '1' } else { '0' }).collect::<String>()));
        while db.step().unwrap() {}
    }
    db.close().unwrap();
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "\n{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

struct Host {
    child: Child,
    calls: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    fn start(dir: &Path, time: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "expiry::steps::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, dir)
            .env(TIME, time.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let calls = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut host = Self { child, calls, lines };
        assert_eq!(host.answer("ready").as_deref(), Some(""));
        host
    }

    fn call(&mut self, call: &str) {
        let calls = self.calls.as_mut().unwrap();
        writeln!(calls, "{call}").and_then(|()| calls.flush()).unwrap();
    }

    fn answer(&mut self, word: &str) -> Option<String> {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(word).map(|rest| rest.trim_start().to_owned()))
    }

    fn close(mut self) {
        drop(self.calls.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the child ended with {status}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[derive(Clone)]
struct Bucket {
    first: u32,
    /// `None` for entries whose time is unknown because of a leap of the clock.
    end: Option<u64>,
}

/// The documented promise, if each horizon rises with the first call after it is due. Numbers of calls begin at 1.
#[derive(Clone, Default)]
struct Times {
    buckets: Vec<Bucket>,
    /// Entries of calls before it are hidden for ever.
    horizon: u32,
    /// Entries of calls before it are hidden until the store is opened again.
    hidden: u32,
    /// The end of doubt by the steady clock of the process.
    certain_at: u64,
}

impl Times {
    fn open(&mut self, call: u32, now: u64) {
        (self.hidden, self.certain_at) = (0, BUCKET);
        if !self.hide(call, now, 0) {
            self.raise(call, now);
        }
    }

    fn begin(&mut self, call: u32, now: u64, steady: u64) {
        let next = Bucket { first: call, end: Some((now / BUCKET + 1) * BUCKET) };
        if self.hide(call, now, steady) {
            if !self.is_undated() {
                self.buckets.push(Bucket { first: call, end: None });
            }
            return;
        }
        match &mut self.buckets[..] {
            [.., before, Bucket { end: end @ None, .. }] if before.end <= Some(now) => {
                *end = Some(now);
                self.buckets.push(next);
            }
            [.., last] if last.end.is_none_or(|end| now < end) => {}
            _ => self.buckets.push(next),
        }
        self.raise(call, now);
    }

    /// Hides entries from before a leap of more than one time to live. Returns whether there is one in doubt.
    fn hide(&mut self, call: u32, now: u64, steady: u64) -> bool {
        let (first, end) = match &self.buckets[..] {
            [.., before, Bucket { first, end: None }] => (*first, before.end.unwrap() + BUCKET),
            [.., last] => (call, last.end.unwrap()),
            [] => return false,
        };
        let is_leap = steady < self.certain_at && now >= end + TTL;
        if is_leap {
            self.hidden = self.hidden.max(first);
        }
        is_leap
    }

    fn raise(&mut self, call: u32, now: u64) {
        let visible = self.buckets.iter().find(|bucket| bucket.end.is_none_or(|end| now < end + TTL));
        self.horizon = self.horizon.max(visible.map_or(call, |bucket| bucket.first));
    }

    fn is_undated(&self) -> bool {
        self.buckets.last().is_some_and(|last| last.end.is_none())
    }
}

struct Model {
    accepted: Vec<u32>,
    times: Times,
}

impl Model {
    fn is_new(&self, id: u32) -> bool {
        self.accepted[id as usize] < self.times.horizon.max(self.times.hidden).max(1)
    }

    fn count(&self) -> usize {
        (0..self.accepted.len() as u32).filter(|&id| !self.is_new(id)).count()
    }
}

#[derive(Debug, Default)]
struct Counts {
    answers: u64,
    accepted: u64,
    renewed: u64,
    refused: u64,
    scans: u64,
    kills_in_calls: u64,
    unanswered: u64,
    executed: u64,
    kills_between_calls: u64,
    closes: u64,
    /// Steps forward by less and by more than the time to live, and back.
    forward: [u64; 2],
    back: [u64; 2],
    steps_while_closed: u64,
    calls_in_doubt: u64,
}

struct World<'d> {
    dir: &'d Path,
    rng: Rng,
    host: Option<Host>,
    model: Model,
    counts: Counts,
    per_window: u32,
    /// A process is killed within so many microseconds after a call begins.
    kill_within: u64,
    now: u64,
    /// The time without the steps.
    unstepped: u64,
    /// The steady clock of the process.
    steady: u64,
}

impl World<'_> {
    fn start(&mut self) {
        self.host = Some(Host::start(self.dir, self.now));
        self.steady = 0;
    }

    fn stepped(&mut self) -> u64 {
        let hours = |hours| hours * 60 * MINUTE;
        let time = match self.rng.below(8) {
            0 | 1 => self.now + hours(1 + self.rng.below(20)),
            2 | 3 => self.now + hours(26 + self.rng.below(60)),
            4 => self.now - hours(1 + self.rng.below(20)),
            5 => self.now - hours(26 + self.rng.below(20)),
            _ => self.unstepped,
        };
        let counts = if time > self.now { &mut self.counts.forward } else { &mut self.counts.back };
        counts[usize::from(time.abs_diff(self.now) > TTL)] += u64::from(time != self.now);
        time
    }

    fn insert(&mut self, call: u32, events: (u32, u32), advance: u64) {
        let (before, mut step) = (self.model.times.clone(), 0);
        self.now += advance;
        self.unstepped += advance;
        self.steady += advance;
        if call > 1 && self.rng.one_in(40) {
            step = self.stepped();
            if step > self.now + 1000 {
                self.model.times.certain_at = self.steady + BUCKET;
            }
            self.now = step;
        }
        self.model.times.begin(call, self.now, self.steady);
        self.counts.calls_in_doubt += u64::from(self.model.times.is_undated());
        let window = self.per_window;
        self.host().call(&format!("{advance} {step} {} {} {window}", events.0, events.1));
        // The end of a doubt is durable before the entries of the call.
        let may_kill = !before.is_undated() || self.model.times.is_undated();
        if !may_kill || !self.rng.one_in(50) {
            let answer = self.host().answer("new").expect("the child answers");
            return self.compare(call, events, &answer, false);
        }
        std::thread::sleep(Duration::from_micros(self.rng.below(self.kill_within)));
        self.host().child.kill().unwrap();
        let answer = self.host().answer("new");
        self.host.take().unwrap().kill();
        self.counts.kills_in_calls += 1;
        self.start();
        if let Some(answer) = answer.filter(|answer| answer.len() as u32 == events.1 - events.0) {
            self.compare(call, events, &answer, false);
            return self.model.times.open(call + 1, self.now);
        }
        self.counts.unanswered += 1;
        self.host().call(&format!("0 0 {} {} {window}", events.0, events.1));
        let answer = self.host().answer("new").expect("the child answers");
        // The call was executed as a whole or not at all.
        let was_executed = !answer.contains('1');
        self.counts.executed += u64::from(was_executed);
        if !was_executed {
            self.model.times = before;
        }
        self.model.times.open(call, self.now);
        self.model.times.begin(call, self.now, 0);
        self.compare(call, events, &answer, was_executed);
        self.scan();
    }

    fn host(&mut self) -> &mut Host {
        self.host.as_mut().unwrap()
    }

    /// `was_executed`: all ids are known from an execution without an answer.
    fn compare(&mut self, call: u32, events: (u32, u32), answer: &str, was_executed: bool) {
        assert_eq!(answer.len() as u32, events.1 - events.0, "call {call}");
        for (event, found) in (events.0..events.1).zip(answer.bytes()) {
            let number = number(event, self.per_window);
            let is_new = self.model.is_new(number);
            assert_eq!(
                found == b'1',
                is_new && !was_executed,
                "call {call}, event {event}, time {}",
                self.now
            );
            let accepted = &mut self.model.accepted[number as usize];
            self.counts.renewed += u64::from(is_new && *accepted > 0);
            match is_new {
                true => *accepted = call,
                false => self.counts.refused += 1,
            }
            self.counts.accepted += u64::from(is_new);
            self.counts.answers += 1;
        }
    }

    fn reopen(&mut self, next_call: u32) {
        let host = self.host.take().unwrap();
        match self.rng.one_in(2) {
            true => {
                host.kill();
                self.counts.kills_between_calls += 1;
            }
            false => {
                host.close();
                self.counts.closes += 1;
            }
        }
        if self.rng.one_in(2) {
            self.now = self.stepped();
            self.counts.steps_while_closed += 1;
        }
        self.start();
        self.model.times.open(next_call, self.now);
    }

    fn scan(&mut self) {
        self.host().call("0");
        let count: usize = self.host().answer("count").unwrap().parse().unwrap();
        assert_eq!(count, self.model.count(), "time {}", self.now);
        self.counts.scans += 1;
    }
}

#[test]
fn answers_are_exact_through_kills_reopenings_and_steps_of_the_clock() {
    let seed =
        std::env::var("SIEVEDB_SEED").map_or(1, |seed| seed.parse().expect("SIEVEDB_SEED is a number"));
    println!("SIEVEDB_SEED={seed}");
    let (ids, per_call) = if thorough() { (4_000_000, 1000) } else { (60_000, 100) };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let mut world = World {
        dir: &dir,
        rng: Rng::new(seed),
        host: None,
        model: Model { accepted: vec![0; ids as usize], times: Times::default() },
        counts: Counts::default(),
        per_window: 200 * per_call,
        kill_within: if thorough() { 40_000 } else { 10_000 },
        now: NOW,
        unstepped: NOW,
        steady: 0,
    };
    world.start();
    world.model.times.open(1, NOW);
    for first in (0..ids).step_by(per_call as usize) {
        let call = first / per_call + 1;
        if call % 400 == 0 {
            println!("call {call}: {:?}", world.counts);
        }
        world.insert(call, (first, first + per_call), TTL / 200);
        if world.rng.one_in(if thorough() { 100 } else { 20 }) {
            world.scan();
        }
        if world.rng.one_in(40) {
            world.reopen(call + 1);
        }
    }
    world.scan();
    world.host.take().unwrap().close();
    println!("{:?}", world.counts);
    let Counts { renewed, refused, kills_in_calls, forward, back, steps_while_closed, .. } = world.counts;
    let least =
        [renewed, refused, kills_in_calls, forward[0], forward[1], back[0] + back[1], steps_while_closed];
    assert!(least.iter().all(|&count| count > 0), "{:?}", world.counts);
    if thorough() {
        let Counts { unanswered, executed, kills_between_calls, closes, calls_in_doubt, .. } = world.counts;
        let least = [unanswered, executed, kills_between_calls, closes, calls_in_doubt];
        assert!(least.iter().all(|&count| count > 0), "{:?}", world.counts);
    }
    let report = Options::new().verify(&dir).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
}
