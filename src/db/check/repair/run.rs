use std::ops::ControlFlow;
use std::path::Path;

use super::logs::read_logs;
use super::merge::{Target, doubtful_name};
use super::plan::Planned;
use super::range_deletes::RangeDeletes;
use super::report::{DoubtfulRanges, ManifestCondition, RepairReport, RepairedKeyspace};
use super::sources::{Chain, Source, chains};
use super::spill::Scratch;
use super::survey::Survey;
use crate::batch::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::db::check::repair::losses::Losses;
use crate::db::handles::store::Db;
use crate::db::open::steps::lock_for_reading;
use crate::error::{Error, Result};
use crate::expiry::options::TimeSource;
use crate::filename::names_in;
use crate::fs::lies_in;
use crate::manifest::keyspace_options::KeyspaceOptions;
use crate::manifest::state::DEFAULT_NAME;
use crate::options::Options;

/// Progress of a repair.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RepairProgress {
    /// Completed keyspaces.
    pub keyspaces_done: u64,
    /// Keyspaces in total.
    pub keyspaces: u64,
}

impl Options {
    /// Repairs the store in `path`: writes all readable data to a new store in `into`, which must be empty or
    /// missing. The damaged store is only read.
    ///
    /// Certain values, as of [`RepairedKeyspace::as_of`], are in keyspaces of the old names; doubtful ones in
    /// `doubtful` (`doubtful:NAME` for a named keyspace). The new store has its own id; readable options of keyspaces
    /// are kept.
    ///
    /// `self` are the options of the new store. The repair needs memory for the budget in these options, a block for
    /// each overlapping table of a run, and a value. Until it is complete the new store has keyspaces
    /// `repair-unfinished…`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (damaged, repaired) = (dir.path().join("damaged"), dir.path().join("repaired"));
    /// # sievedb::Db::open(&damaged)?.put("k", "v")?;
    /// std::fs::remove_file(damaged.join("CURRENT")).unwrap();
    /// let report = sievedb::Options::new().repair(&damaged, &repaired)?;
    /// assert!(report.is_complete());
    /// assert_eq!(sievedb::Db::open(&repaired)?.get("k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`] if `path` has no file of a store, [`Error::Locked`] if it is open for writing,
    /// [`Error::InvalidArgument`] if `into` is not empty, and the errors of writing the new store. Damage is not an
    /// error.
    pub fn repair(self, path: impl AsRef<Path>, into: impl AsRef<Path>) -> Result<RepairReport> {
        self.repair_with(path, into, |_| ControlFlow::Continue(()))
    }

    /// [`Options::repair`] with a callback, which is called several times in a large keyspace. If it cancels the call,
    /// the new store is incomplete.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Options::repair`].
    pub fn repair_with(
        self,
        path: impl AsRef<Path>,
        into: impl AsRef<Path>,
        mut progress: impl FnMut(RepairProgress) -> ControlFlow<()>,
    ) -> Result<RepairReport> {
        repair(self, path.as_ref(), into.as_ref(), &mut progress)
    }
}

fn repair(
    options: Options,
    dir: &Path,
    into: &Path,
    progress: &mut dyn FnMut(RepairProgress) -> ControlFlow<()>,
) -> Result<RepairReport> {
    let fs = options.fs.clone();
    names_in(&*fs, dir)?;
    let _lock = lock_for_reading(&*fs, dir)?;
    if lies_in(&*fs, into, dir).map_err(|error| Error::io("look for", into, error))? {
        return Err(Error::invalid(format!("{} is in the damaged store", into.display())));
    }
    let (survey, plan) = Survey::of(&fs, dir)?;
    if fs.list(into).is_ok_and(|names| !names.is_empty()) {
        return Err(Error::invalid(format!("{} is not empty", into.display())));
    }
    let default_options = options_of(&survey, Some(DEFAULT_KEYSPACE));
    let db = options.default_keyspace(without_time(&default_options)).open(into)?;
    let mut report = RepairReport {
        manifest: survey.manifest,
        tables: plan.keyspaces.values().flatten().filter(|planned| planned.table.is_readable).count() as u64,
        left_out: survey.left_out.clone(),
        damage: survey.damage.clone(),
        ..RepairReport::default()
    };
    let mut taken: Vec<String> =
        survey.state.keyspaces.values().map(|keyspace| keyspace.name.clone()).collect();
    taken.push(DEFAULT_NAME.to_owned());
    let mut scratch = Scratch::new(&db, &taken);
    let losses = read_logs(&survey, &mut scratch, &mut report)?;
    let (newest, mut tables) = (plan.newest, plan.keyspaces);
    let with_writes = scratch.ids().map(Some);
    let known = survey.state.keyspaces.keys().copied().map(Some);
    let missing: Vec<_> = with_writes.chain(known).collect();
    missing.into_iter().for_each(|id| _ = tables.entry(id).or_default());
    let has_unattributed = tables.contains_key(&None);
    let can_be_certain = |id: Option<KeyspaceId>| {
        let flushed = id.map_or(0, |id| survey.flushed(id));
        survey.manifest == ManifestCondition::Whole
            || !(has_unattributed || losses.show_lost_flush(flushed, newest))
    };
    let mut done = RepairProgress { keyspaces_done: 0, keyspaces: tables.len() as u64 };
    let mut check = |done| if progress(done).is_break() { Err(Error::Cancelled) } else { Ok(()) };
    check(done)?;
    let mut doubtful = Vec::new();
    for (id, tables) in tables {
        let (survey, losses) = (&survey, &losses);
        let keyspace = Repaired { survey, losses, db: &db, id, can_be_certain: can_be_certain(id) };
        doubtful.extend(keyspace.run(tables, &scratch, &mut taken, &mut report, &mut || check(done))?);
        done.keyspaces_done += 1;
        check(done)?;
    }
    report.keyspaces.extend(doubtful);
    scratch.finish()?;
    db.flush()?;
    let stats = db.stats();
    for keyspace in &mut report.keyspaces {
        keyspace.expiry = stats.keyspace(&keyspace.name).and_then(|stats| stats.expiry.clone());
    }
    db.close()?;
    Ok(report)
}

struct Repaired<'a> {
    survey: &'a Survey,
    losses: &'a Losses,
    db: &'a Db,
    id: Option<KeyspaceId>,
    /// `false` if newer tables may be lost, or if tables of an unknown keyspace may have newer entries.
    can_be_certain: bool,
}

impl Repaired<'_> {
    fn run(
        &self,
        tables: Vec<Planned>,
        scratch: &Scratch<'_>,
        taken: &mut Vec<String>,
        report: &mut RepairReport,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<RepairedKeyspace>> {
        let Self { survey, losses, db, id, can_be_certain } = *self;
        let named = id.and_then(|id| survey.state.keyspaces.get(&id)).map(|keyspace| keyspace.name.clone());
        let options = options_of(survey, id);
        let certain = match &named {
            Some(name) => Some(db.keyspace(name, without_time(&options))?),
            None => None,
        };
        let name = id.and_then(|id| survey.name(id)).map(str::to_owned);
        let into = doubtful_name(name.as_deref(), taken);
        let ranges = DoubtfulRanges::new(name.clone(), into.clone());
        let made = certain.clone().filter(|_| options.expiry().is_some());
        let certain = certain.filter(|_| can_be_certain);
        let buckets = id.map(|id| survey.buckets(id, &losses.boundaries)).filter(|_| made.is_some());
        let by_bucket = buckets.map(|buckets| scratch.by_bucket(buckets)).transpose()?;
        // Doubtful entries must not expire before a user has seen them.
        let doubtful_options = without_expiry(&options);
        let is_whole = survey.manifest == ManifestCondition::Whole;
        let mut target = Target::new(db, (certain, by_bucket), ranges, doubtful_options, is_whole);
        let mut sources = Vec::new();
        let logged = id.map_or(&[][..], |id| scratch.range_deletes(id));
        let lost = &mut report.lost_entries;
        let range_deletes = RangeDeletes::read(survey, name.as_deref(), &tables, logged, lost)?;
        for chain in chains(tables) {
            let chain = Chain::new(survey, name.clone(), chain, &mut report.lost_entries)?;
            sources.push(Source::Tables(Box::new(chain)));
        }
        if let Some(id) = id {
            sources.extend(scratch.writes(id)?.map(|writes| Source::Log(Box::new(writes))));
        }
        target.merge(sources, &range_deletes, &mut report.lost_entries, check)?;
        if let Some(made) = made {
            target.finish(&made, options)?;
        }
        let (keys, values) = (target.certain_keys, target.doubtful_values);
        report.doubtful.extend(target.ranges.finish());
        let as_of = id.map(|id| survey.as_of(id, losses));
        let certain = |name| RepairedKeyspace { name, keys, is_doubtful: false, as_of, expiry: None };
        report.keyspaces.extend(named.map(certain));
        if values == 0 {
            return Ok(None);
        }
        taken.push(into.clone());
        Ok(Some(RepairedKeyspace { name: into, keys: values, is_doubtful: true, as_of: None, expiry: None }))
    }
}

/// Gives an expiring keyspace a caller's clock, whose time is not set.
fn without_time(options: &KeyspaceOptions) -> KeyspaceOptions {
    let time_source = if options.ttl.is_some() { TimeSource::Caller } else { options.time_source };
    options.clone().time_source(time_source)
}

fn without_expiry(options: &KeyspaceOptions) -> KeyspaceOptions {
    let KeyspaceOptions { ttl, ttl_buckets, refresh, time_source, .. } = KeyspaceOptions::default();
    KeyspaceOptions { ttl, ttl_buckets, refresh, time_source, ..options.clone() }
}

fn options_of(survey: &Survey, id: Option<KeyspaceId>) -> KeyspaceOptions {
    let keyspace = id.and_then(|id| survey.state.keyspaces.get(&id));
    let options = keyspace.and_then(|keyspace| KeyspaceOptions::decode(&keyspace.options).ok());
    options.filter(|options| options.validate().is_ok()).unwrap_or_default()
}
