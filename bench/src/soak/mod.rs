//! A long run with intermittent faults.
//!
//! Eight threads make calls of every kind and compare each answer with their own writes. Meanwhile the file system
//! fails ([`faults`]), the directory is moved ([`place`]), and the store is closed. Then the store must match the model
//! ([`history`]), even if it has failed. It must match again after a close, drop or power loss, and reopening. Calls
//! may be stuck only while a fault is armed ([`watch`]).
//!
//! The seed determines the calls of each thread, but not the interleaving.

mod calls;
mod dice;
mod faults;
mod history;
mod life;
mod place;
mod reads;
mod stop;
mod summary;
mod value;
mod watch;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sievedb::Db;
use sievedb::fs::{CrashPolicy, MemFs};

use crate::Result;
use dice::{Dice, keyspace_options};
use faults::{Fault, Weather, is_fault};
use history::{History, SHARED};
use life::{Life, Outcome};
use place::{Disturbance, Place};
use summary::Events;
use watch::{Call, Watch};
use worker::{Worker, space_name};

/// Runs threads on a store while its file system fails from time to time, and compares the store with a
/// model.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Duration in minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Determines the calls of the threads and the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that use the store.
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// A directory for the store on disk [default: a temporary one]. It is removed unless something is found.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// After the last fault, the store must accept writes within this time unless an event has disabled writing.
const HEALED: Duration = Duration::from_secs(10);

struct Store {
    place: Place,
    histories: Vec<History>,
    ended: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// All acknowledged writes are present.
    Whole,
    /// All durable writes are present.
    PowerLost,
}

struct Soak {
    seed: u64,
    weather: Arc<Weather>,
    watch: Arc<Watch>,
    events: Events,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    silence_faults();
    let start = Instant::now();
    let weather = Weather::new(args.seed);
    let watch = Watch::new(&weather, args.threads);
    let folder = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    println!("soak: {} minutes, {} threads, seed {}", args.minutes, args.threads, args.seed);
    let store = |place| Store {
        place,
        histories: (0..args.threads).map(History::new).collect(),
        ended: Ended::Whole,
    };
    let mut stores = [store(Place::Disk(folder.path().join("store"))), store(Place::Memory(MemFs::new()))];
    let watchdog = Arc::clone(&watch);
    let looks = std::thread::spawn(move || {
        if let Some(stuck) = watchdog.watch() {
            println!("FOUND: {stuck}");
            std::process::exit(1);
        }
    });
    let mut soak = Soak { seed: args.seed, weather, watch: Arc::clone(&watch), events: Events::default() };
    let until = start + Duration::from_secs_f64(args.minutes * 60.0);
    let (mut round, mut lasts) = (0, 0);
    let found = loop {
        let store = &mut stores[round as usize % 2];
        let is_last = Instant::now() >= until;
        lasts += u64::from(is_last);
        if let Err(wrong) = soak.round(store, round, is_last) {
            break Err(format!("round {round}, {}: {wrong}", watch.scene()));
        }
        if lasts == 2 {
            break Ok(());
        }
        round += 1;
    };
    watch.end();
    let _ = looks.join();
    summary::print(&soak, round + 1, start.elapsed())?;
    found.map_err(|wrong| {
        let kept = folder.keep();
        let kept = stores[round as usize % 2].place.keep(&kept);
        println!("FOUND: {wrong}\nThe store is in {}; the seed was {}.", kept.display(), args.seed);
        wrong.into()
    })
}

fn silence_faults() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_fault(info.payload()) {
            hook(info);
        }
    }));
}

impl Soak {
    fn round(&mut self, store: &mut Store, round: u64, is_last: bool) -> Result<(), String> {
        let mut dice = Dice::new(self.seed, 100 + round);
        let life = Life::new(&self.weather, &self.watch);
        self.scene(&store.place, "opening");
        let db = self.open(store, &life, &mut dice)?;
        self.scene(&store.place, "comparing the opened store");
        stop::settle(store, &db, &life)?;
        self.events.comparisons += 1;
        if is_last {
            return db.close().map_err(|error| format!("close: {error}"));
        }
        let closes = self.use_it(store, &db, &life, &mut dice, round)?;
        self.weather.disarm();
        if !closes {
            self.scene(&store.place, "comparing before the end");
            stop::compare(store, &db, &life)?;
            self.events.comparisons += 1;
        }
        self.scene(&store.place, "ending");
        self.end(store, db, &life, &mut dice)
    }

    fn scene(&self, place: &Place, doing: &str) {
        self.watch.set_scene(format!("{doing}, {}", place.dir().display()));
    }

    fn open(&mut self, store: &Store, life: &Life, dice: &mut Dice) -> Result<Db, String> {
        self.events.openings += 1;
        let options = store.place.options(&self.weather, dice);
        let controller = self.watch.controller();
        let open = || options.clone().open(store.place.dir());
        let mut db = None;
        if self.events.openings > 2 && dice.one_in(4) {
            self.weather.arm(Fault::ALL[dice.below(6) as usize], 1 + dice.below(8));
            if let Outcome::Done(opened) = life.call(controller, Call::Open, open)? {
                db = Some(opened);
            }
            self.weather.disarm();
        }
        let db = match db {
            Some(db) => db,
            None => {
                self.watch.during(controller, Call::Open, open).map_err(|error| format!("open: {error}"))?
            }
        };
        self.events.torn_tails += db.open_report().dropped.len() as u64;
        for space in 1..SHARED {
            if db.existing_keyspace(&space_name(space, 0)).is_none() {
                if self.events.openings > 2 {
                    return Err(format!("keyspace {space} is missing"));
                }
                db.keyspace(&space_name(space, 0), keyspace_options(dice))
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(db)
    }

    fn use_it(
        &mut self,
        store: &mut Store,
        db: &Db,
        life: &Life,
        dice: &mut Dice,
        round: u64,
    ) -> Result<bool, String> {
        let Store { place, histories, .. } = store;
        let closes = dice.one_in(6);
        std::thread::scope(|scope| {
            let threads: Vec<_> = histories
                .iter_mut()
                .enumerate()
                .map(|(thread, history)| {
                    let dice = Dice::new(self.seed, (round + 1) << 16 | thread as u64);
                    let worker = Worker::new(life, history, dice, db.clone());
                    scope.spawn(move || {
                        worker.work().inspect_err(|_| life.is_over.store(true, Ordering::SeqCst))
                    })
                })
                .collect();
            let directed = self.direct(place, life, dice);
            if closes && directed.is_ok() && !life.is_over() {
                self.events.closed_in_use += 1;
                self.scene(place, "closing in use");
                life.is_closing.store(true, Ordering::SeqCst);
                let _ = self.watch.during(self.watch.controller(), Call::Close, || db.clone().close());
            }
            life.is_over.store(true, Ordering::SeqCst);
            let found: Vec<String> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
                .chain([directed])
                .filter_map(Result::err)
                .collect();
            if found.is_empty() { Ok(life.is_closing.load(Ordering::SeqCst)) } else { Err(found.join("; ")) }
        })
    }

    fn direct(&mut self, place: &Place, life: &Life, dice: &mut Dice) -> Result<(), String> {
        let until = Instant::now() + Duration::from_millis(1000 + dice.below(7000));
        let is_calm = dice.one_in(4);
        let disturbance = (!is_calm && dice.one_in(4)).then(|| Disturbance::ALL[dice.below(3) as usize]);
        while Instant::now() < until && !life.is_over() {
            self.scene(place, "no fault");
            rest(life, 200 + dice.below(1500));
            match disturbance {
                _ if is_calm || life.is_over() => {}
                Some(what) => {
                    if matches!(place, Place::Disk(_)) && !life.is_disturbed.load(Ordering::SeqCst) {
                        self.scene(place, &format!("{what:?}"));
                        self.events.disturbed(what);
                        place.disturb(what, life, dice)?;
                    }
                }
                None => {
                    let fault = Fault::ALL[dice.below(6) as usize];
                    self.scene(place, fault.name());
                    self.events.armed(fault);
                    self.weather.arm(fault, [1, 10, 100][dice.below(3) as usize]);
                    rest(life, 20 + dice.below(1500));
                    self.weather.disarm();
                }
            }
        }
        Ok(())
    }

    fn has_failed(&mut self, db: &Db, life: &Life) -> Result<bool, String> {
        let until = self.watch.counted() + HEALED.as_nanos() as u64;
        loop {
            match db.sync().and_then(|()| db.flush()) {
                Ok(()) => {
                    self.events.healed_lives += u64::from(life.met_faults());
                    return Ok(false);
                }
                Err(_) if life.may_have_failed() => {
                    self.events.failed_lives += 1;
                    return Ok(true);
                }
                Err(error) if self.watch.counted() > until => {
                    return Err(format!("writing does not recover: {error}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn end(&mut self, store: &mut Store, db: Db, life: &Life, dice: &mut Dice) -> Result<(), String> {
        store.ended = Ended::Whole;
        if life.is_closing.load(Ordering::SeqCst) {
            return Ok(());
        }
        let failed = self.has_failed(&db, life)?;
        let controller = self.watch.controller();
        let policy = match dice.below(3) {
            0 => CrashPolicy::DropUnsynced,
            1 => CrashPolicy::KeepAll,
            _ => CrashPolicy::Random(dice.below(u64::MAX)),
        };
        if matches!(store.place, Place::Memory(_)) && dice.one_in(2) {
            self.events.power_losses += 1;
            store.place.lose_power(policy);
            store.ended = if policy == CrashPolicy::KeepAll { Ended::Whole } else { Ended::PowerLost };
            return Ok(());
        }
        if dice.one_in(2) {
            self.watch.during(controller, Call::Close, || drop(db));
            return Ok(());
        }
        match self.watch.during(controller, Call::Close, || db.close()) {
            Ok(()) if !failed => store.place.lose_power(CrashPolicy::DropUnsynced),
            Err(error) if !failed => return Err(format!("close: {error}")),
            Err(error) if error.is_corruption() => return Err(format!("close of a failed store: {error}")),
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }
}

fn rest(life: &Life, millis: u64) {
    let until = Instant::now() + Duration::from_millis(millis);
    while Instant::now() < until && !life.is_over() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
