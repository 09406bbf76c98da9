//! Opening a live view for reading, and refreshing it.
//!
//! A refreshed handle gets a new engine, which shares the budget, caches and open tables. Iterators and snapshots
//! keep the old engine.

use std::path::Path;
use std::sync::Arc;

use super::live_view::LiveView;
use super::recover::{Recovered, recover};
use super::replay_buffer::part_bytes_max;
use super::steps::{KnownTables, build_engine_over, no_current, shared};
use super::view_files::ViewFs;
use crate::batch::DEFAULT_KEYSPACE;
use crate::db::engine::Engine;
use crate::db::state::open_report::AsOf;
use crate::error::Result;
use crate::file_header::StoreIds;
use crate::fs::{Fs, LockKind, LockedDir};
use crate::number_map::NumberMap;
use crate::options::Options;
use crate::table::TableContext;
use crate::version::SharedByTables;

pub(in crate::db) fn open_for_reading(dir: &Path, options: Options) -> Result<(Engine, LiveView)> {
    let view = LiveView::take(&options.fs, dir, options.view_files_max())?;
    let engine = open_view(&view, dir, options, None)?;
    Ok((engine, view))
}

pub(in crate::db) fn open_newer(engine: &Engine, view: &LiveView) -> Result<Option<(Engine, LiveView)>> {
    let Some(newer) = view.newer()? else { return Ok(None) };
    // Caches are keyed by file number, which is unique only among views that share files.
    let before = Arc::ptr_eq(newer.files(), view.files()).then_some(engine);
    let opened = open_view(&newer, &engine.files.dir, engine.options.clone(), before)?;
    Ok(Some((opened, newer)))
}

fn open_view(view: &LiveView, dir: &Path, options: Options, before: Option<&Engine>) -> Result<Engine> {
    let locked = unlocked(dir, &view.fs())?;
    let mut recovered = recover(&*locked, dir, part_bytes_max(options.memory_budget))?;
    let recovered = recovered.as_mut().ok_or_else(|| no_current(dir))?;
    describe(recovered, view);
    let options = options.fs(Arc::clone(&locked) as Arc<dyn Fs>);
    let shared = match before {
        Some(before) => SharedByTables {
            context: Arc::clone(&before.context),
            obsolete_files: Arc::clone(&before.files.obsolete),
            open_tables: Arc::clone(&before.keyspaces.open_tables),
            keyspace: DEFAULT_KEYSPACE,
        },
        None => SharedByTables {
            context: context(view, dir, &options, recovered)?,
            obsolete_files: Arc::default(),
            open_tables: Arc::default(),
            keyspace: DEFAULT_KEYSPACE,
        },
    };
    let known = before.map(tables).unwrap_or_default();
    let state = &recovered.manifest.state;
    let mut engine = build_engine_over(dir, options, recovered, state, locked, &shared, &known)?;
    engine.replay_for_reading(recovered)?;
    engine.report.clock_leap = engine.hide_at_opening(true);
    if let Some(before) = before {
        engine.hide_what_was_hidden(&before.keyspaces.horizons());
    }
    Ok(engine)
}

fn describe(recovered: &mut Recovered, view: &LiveView) {
    let report = &mut recovered.report;
    report.as_of = view.as_of().map(|as_of| AsOf { seqno: recovered.last_seqno, ..as_of });
    if report.as_of.is_some_and(|as_of| as_of.in_use) {
        // An append may be running, so the end of the log is not a torn tail.
        report.dropped.clear();
    }
}

fn context(
    view: &LiveView,
    dir: &Path,
    options: &Options,
    recovered: &Recovered,
) -> Result<Arc<TableContext>> {
    let tables: Arc<dyn Fs> = Arc::new(ViewFs { files: Arc::clone(view.files()), moment: None });
    let locked = unlocked(dir, &tables)?;
    let options = options.clone().fs(Arc::clone(&locked) as Arc<dyn Fs>);
    let state = &recovered.manifest.state;
    let ids = StoreIds::new(recovered.store_id, &state.store_ids);
    let context = shared(dir, &options, ids, state.hash_seed);
    context.memory.load_whole_filters();
    view.files().set_cache(&context.files);
    let files = Arc::clone(&context.files);
    locked.close_spare_with(move || files.close_one());
    Ok(context)
}

fn unlocked(dir: &Path, fs: &Arc<dyn Fs>) -> Result<Arc<LockedDir>> {
    let guard = fs.lock(dir, LockKind::Shared).map_err(|error| crate::Error::io("open", dir, error))?;
    Ok(LockedDir::new(dir, fs, guard))
}

fn tables(engine: &Engine) -> KnownTables {
    let mut tables = NumberMap::new();
    for tree in engine.keyspaces.all() {
        let of_tree = tree.view().version.clone();
        tables.extend(of_tree.all_tables().map(|(_, table)| (table.meta.number, Arc::clone(table))));
    }
    tables
}
