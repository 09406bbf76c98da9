//! Replay of the logs into memtables, and into tables when memtables are full.
//!
//! Batches arrive in parts ([`LogPart`]). If the memtables have room for a whole part, its entries are applied in key
//! order, which is much faster. Otherwise the part is halved, down to single batches, for which room is made as in
//! `commit/room`. Full memtables are flushed at once ([`Engine::write_memtable`]), so opening needs no more memory
//! than writing.
//!
//! The first edit of the new manifest names all these tables and the log floor.
//!
//! If recovery kept all batches and the memtables have room, or if the logs are small, batches still in memtables are
//! also appended to the new log. Otherwise the memtables are flushed.
//!
//! On a full disk the old logs are kept ([`Carry::Keep`]). After a failed sync, the last batches of the newest log
//! may exist in the page cache only. So batches that may not be durable are appended to the new log, and the newest
//! old log is cut before them. Full memtables become immutable until there is space.

use std::sync::{Arc, Mutex};
use std::thread::Builder;

use super::recover::{Portion, Recovered, Take, replay};
use super::replay_buffer::{LogPart, Logged, Piece, part_bytes_max};
use crate::batch::{BatchReader, foreign, own_batch};
use crate::db::commit::apply::apply;
use crate::db::engine::Engine;
use crate::db::generation::new_generation::Draft;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::next_log::NewLog;
use crate::db::state::parallel::in_parallel;
use crate::error::Result;
use crate::manifest::edit::{EditItem, LogEnd};
use crate::manifest::state::ManifestState;
use crate::memory::LeaseKind;
use crate::memtable::{Memtable, SpanStack};
use crate::sync::lock;
use crate::wal::{FramedWriter, READER_BYTES, RecordKind};

/// Smaller logs are copied into the new log even if memtables are flushed.
const CARRY_BYTES_MAX: u64 = 1 << 20;

const MEMTABLE_ENTRY_BYTES: usize = 33;

const READ_ONLY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { Memtable::FLUSH_BYTES_MAX };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carry {
    /// In tables or the new log. The old logs are dropped.
    Rewrite,
    /// In the old logs if they are certainly durable there; otherwise in the new log.
    Keep,
}

impl Engine {
    /// Replays without flushes. Memtables are as large as possible, because lookups search each one.
    pub(super) fn replay_for_reading(&self, recovered: &Recovered) -> Result<()> {
        let known = &recovered.manifest.state;
        self.replay(recovered, &|_| true, &mut |portion| {
            let filled = match portion {
                Portion::Piece(piece) => self.apply_piece(&piece, Some(0))?,
                Portion::Batch(Logged { bytes, .. }) => {
                    self.apply_lacking(known, bytes, self.lacking(known, bytes)?, 0)?
                }
            };
            let full = filled.iter().filter(|tree| tree.active_bytes() >= READ_ONLY_BYTES_MAX);
            full.for_each(|full| full.seal());
            Ok(())
        })
    }

    pub(super) fn replay_if_it_fits(&self, recovered: &Recovered) -> Result<bool> {
        let known = &recovered.manifest.state;
        let mut fits = true;
        self.replay(recovered, &|piece| self.has_room_for(piece), &mut |portion| {
            let full = match portion {
                _ if !fits => return Ok(()),
                Portion::Piece(piece) => self.apply_piece(&piece, None)?,
                Portion::Batch(Logged { bytes, log, .. }) => {
                    let trees = self.lacking(known, bytes)?;
                    fits = self.has_room(&[(bytes, &trees[..])]);
                    if !fits {
                        return Ok(());
                    }
                    self.apply_lacking(known, bytes, trees, log)?
                }
            };
            full.iter().for_each(|full| full.seal());
            Ok(())
        })?;
        Ok(fits)
    }

    pub(super) fn replay_to_memtables(
        &self,
        recovered: &Recovered,
        draft: &mut Draft,
        carry: Carry,
    ) -> Result<()> {
        let mut log = draft.create_log(&self.files)?;
        let kept = recovered.kept.as_ref().map(LogPart::all).filter(|all| {
            carry == Carry::Rewrite
                && recovered.log_bytes <= self.options.logs_bytes()
                && self.has_room_for(all)
        });
        match (kept, carry) {
            (Some(kept), _) => self.carry(&kept, recovered.log_bytes, &mut log)?,
            (None, Carry::Rewrite) => self.replay_and_flush(recovered, draft, &mut log)?,
            (None, Carry::Keep) => {
                let end = self.replay_and_keep(recovered, &mut log)?;
                draft.keep_logs(0, recovered.last_log, end)?;
            }
        }
        if carry == Carry::Rewrite {
            draft.keep_no_logs();
        }
        draft.name_log(log, self.sequence.visible())
    }

    /// Applies the batches and writes them to the new log, synced; with two threads if they are many.
    fn carry(&self, all: &Piece<'_>, bytes: u64, log: &mut NewLog) -> Result<()> {
        let threads = if bytes > CARRY_BYTES_MAX && self.options.background_threads > 0 { 2 } else { 1 };
        let (number, writer) = (log.number, Mutex::new(&mut log.writer));
        let append = || {
            let mut writer = lock(&writer);
            all.batches().try_for_each(|batch| append(&mut writer, batch.bytes))?;
            writer.sync()
        };
        let apply = || {
            self.apply_piece(all, Some(number))?.iter().for_each(|full| full.seal());
            Ok(())
        };
        let both = |part| if part == 0 { apply() } else { append() };
        if threads == 1 {
            append()?;
        }
        in_parallel(threads, || Builder::new().name("sievedb-open".to_owned()), both).into_iter().collect()
    }

    /// Flushes full memtables. At the end flushes the others, unless the new log has the batches.
    fn replay_and_flush(&self, recovered: &Recovered, draft: &mut Draft, log: &mut NewLog) -> Result<()> {
        let known = &recovered.manifest.state;
        let is_carried = recovered.log_bytes <= CARRY_BYTES_MAX.min(self.options.memory_budget as u64 / 16);
        self.replay(recovered, &|piece| self.has_room_for(piece), &mut |portion| {
            if is_carried {
                portion.batches().try_for_each(|batch| append(&mut log.writer, batch.bytes))?;
            }
            let full = match portion {
                Portion::Piece(piece) => self.apply_piece(&piece, Some(log.number))?,
                Portion::Batch(Logged { bytes, .. }) => {
                    let trees = self.lacking(known, bytes)?;
                    while !self.has_room(&[(bytes, &trees[..])]) {
                        let Some(largest) = self.keyspaces.largest_filled() else { break };
                        self.flush_into(draft, &largest)?;
                    }
                    self.apply_lacking(known, bytes, trees, log.number)?
                }
            };
            full.iter().try_for_each(|full| self.flush_into(draft, full))
        })?;
        if is_carried {
            return log.writer.sync();
        }
        while let Some(largest) = self.keyspaces.largest_filled() {
            self.flush_into(draft, &largest)?;
        }
        Ok(())
    }

    /// Writes batches that may not be durable to the new log. Returns the edit that cuts the newest old log.
    fn replay_and_keep(&self, recovered: &Recovered, new: &mut NewLog) -> Result<Option<EditItem>> {
        let (known, number) = (&recovered.manifest.state, recovered.last_log);
        let mut cut = None;
        self.replay(recovered, &|_| true, &mut |portion| {
            portion.batches().try_for_each(|Logged { bytes, log, end }| {
                let is_newest = log == number;
                let stays = !is_newest || end <= recovered.durable;
                if !stays {
                    append(&mut new.writer, bytes)?;
                } else if is_newest {
                    let batch = BatchReader::open(bytes).map_err(own_batch)?;
                    let end = LogEnd { len: end, last_seqno: batch.last_seqno(), is_cut: true };
                    cut = Some(EditItem::LogEnded { number, end });
                }
                let log = if stays { log } else { new.number };
                let full = self.apply_lacking(known, bytes, self.lacking(known, bytes)?, log)?;
                full.iter().for_each(|full| full.seal());
                Ok(())
            })
        })?;
        new.writer.sync()?;
        Ok(cut)
    }

    /// Passes on the batches in order: whole pieces that satisfy `fits`, other batches one at a time.
    fn replay(
        &self,
        recovered: &Recovered,
        fits: &dyn Fn(&Piece<'_>) -> bool,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let part_bytes = part_bytes_max(self.options.memory_budget);
        let read_bytes = match &recovered.kept {
            Some(kept) => kept.size_bytes(),
            None => part_bytes + READER_BYTES,
        };
        let _reading = self.context.memory.lease(LeaseKind::Tables, read_bytes);
        replay(&*self.files.fs, &self.files.dir, recovered, part_bytes, &mut |portion| match portion {
            Portion::Piece(piece) => by_pieces(piece, fits, take),
            Portion::Batch(_) => take(portion),
        })
    }

    fn has_room_for(&self, piece: &Piece<'_>) -> bool {
        let (mut trees, mut count, mut bytes, mut growth) = (0, 0, 0, 0);
        for entries in piece.entries() {
            let Some(tree) = self.keyspaces.get(entries.keyspace) else { return false };
            let (range_deletes, of_ranges) = entries.range_deletes();
            let of_spans = SpanStack::bytes_max(range_deletes, of_ranges);
            let more = entries.bytes() + entries.len() * MEMTABLE_ENTRY_BYTES + of_spans;
            if tree.active_bytes() + more > tree.memtable_bytes() {
                return false;
            }
            trees += 1;
            count += entries.len();
            bytes += entries.bytes();
            growth += tree.growth_max() + of_spans;
        }
        let memory = &self.context.memory;
        trees == 0
            || memory.memtables() + growth + Memtable::bytes_max(count, bytes, trees)
                <= memory.memtables_max()
    }

    /// Applies a piece in key order. If `log` is given, the entries now belong to it. Returns trees with full
    /// memtables.
    fn apply_piece(&self, piece: &Piece<'_>, log: Option<u64>) -> Result<Vec<Arc<Tree>>> {
        let mut trees = Vec::new();
        for entries in piece.entries() {
            let tree = self.keyspaces.get(entries.keyspace).ok_or_else(foreign)?;
            let active = tree.memtable_for(log.unwrap_or(entries.log));
            if entries.insert_into(&active.memtable) {
                tree.set_grown();
            }
            trees.push(tree);
        }
        Ok(self.keyspaces.full_among(std::iter::once(&trees[..])))
    }

    fn lacking(&self, known: &ManifestState, bytes: &[u8]) -> Result<Vec<Arc<Tree>>> {
        let mut trees: Vec<Arc<Tree>> = Vec::new();
        for entry in BatchReader::open(bytes).map_err(own_batch)? {
            let entry = entry.map_err(own_batch)?;
            if known.lacks(entry.keyspace, entry.seqno) && !trees.iter().any(|tree| tree.id == entry.keyspace)
            {
                trees.extend(self.keyspaces.get(entry.keyspace));
            }
        }
        Ok(trees)
    }

    /// Applies a batch, which now belongs to `log`. Returns trees with full memtables.
    fn apply_lacking(
        &self,
        known: &ManifestState,
        bytes: &[u8],
        trees: Vec<Arc<Tree>>,
        log: u64,
    ) -> Result<Vec<Arc<Tree>>> {
        apply(bytes, &trees, log, |entry| known.lacks(entry.keyspace, entry.seqno))?;
        Ok(self.keyspaces.full_among(std::iter::once(&trees[..])))
    }

    fn flush_into(&self, draft: &mut Draft, tree: &Arc<Tree>) -> Result<()> {
        tree.seal();
        let Some(memtable) = tree.view().immutables.last().cloned() else { return Ok(()) };
        let change = self.write_memtable(tree, &tree.view().version, &memtable)?;
        self.files.sync_dir()?;
        draft.add_visible(change)
    }
}

fn append(writer: &mut FramedWriter, batch: &[u8]) -> Result<()> {
    writer.append_record(RecordKind::Batch, batch).map(drop)
}

fn by_pieces(piece: Piece<'_>, fits: &dyn Fn(&Piece<'_>) -> bool, take: &mut Take<'_>) -> Result<()> {
    if fits(&piece) {
        return take(Portion::Piece(piece));
    }
    match piece.halves() {
        Some(halves) => halves.into_iter().try_for_each(|half| by_pieces(half, fits, take)),
        None => piece.batches().try_for_each(|batch| take(Portion::Batch(batch))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::recover::recover;
    use super::*;
    use crate::db::handles::store::Db;
    use crate::db::queues::value::Value;
    use crate::fs::{CrashPolicy, MemFs};
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn a_store_opened_for_reading_makes_another_memtable_when_one_is_as_large_as_it_may_be() {
        let fs = MemFs::new();
        let options =
            || Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(64 << 20);
        let db = options().open("/db").unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::new().memtable_bytes(8 << 20)).unwrap();
        let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        (0..30_000).for_each(|n| keyspace.put(key(n), [n as u8; 100]).unwrap());
        // The reader has less memory, but its memtables do not become immutable earlier for that reason.
        let image = Arc::new(fs.crash(CrashPolicy::KeepAll));
        let reader = options().fs(image).memory_budget(4 << 20).read_only().open("/db").unwrap();
        let keyspace = reader.existing_keyspace("k").unwrap();
        let view = keyspace.tree.view();
        assert!((2..=4).contains(&view.immutables.len()), "{}", view.immutables.len());
        assert!((0..30_000).all(|n| keyspace.get(key(n)).unwrap().as_deref() == Some(&[n as u8; 100][..])));
        assert_eq!(keyspace.iter().count(), 30_000);
    }

    const NAMES: [&str; 2] = ["default", "other"];

    type Contents = Vec<Vec<(Vec<u8>, Vec<u8>)>>;

    fn options(fs: &MemFs, budget: usize, threads: usize) -> Options {
        Options::new().fs(Arc::new(fs.clone())).memory_budget(budget).background_threads(threads)
    }

    fn contents(db: &Db) -> Contents {
        let pair = |entry: Result<_>| entry.map(|(key, value): (_, Value)| (Vec::from(key), value.to_vec()));
        let all = |name: &str| db.existing_keyspace(name).unwrap().iter().map(|e| pair(e).unwrap()).collect();
        NAMES.iter().map(|name| all(name)).collect()
    }

    /// A store, and its contents, with some entries in tables and about 1.5 MiB in its log. Keys repeat, and many
    /// share prefixes. One batch exceeds a part of the smallest budget.
    fn with_log(fs: &MemFs) -> (Db, Contents) {
        let db = options(fs, 64 << 20, 0).open("/db").unwrap();
        let keyspaces = NAMES.map(|name| db.keyspace(name, KeyspaceOptions::new()).unwrap());
        let gone = db.keyspace("gone", KeyspaceOptions::new()).unwrap();
        let mut random = 7u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % n
        };
        for number in 0..1200 {
            let mut batch = crate::WriteBatch::new();
            for _ in 0..if number == 700 { 2500 } else { below(14) } {
                let len = below(12) as usize;
                let mut key = b"prefix".repeat(below(3) as usize);
                key.extend_from_slice(&below(1 << 20).to_be_bytes()[8 - len.min(8)..]);
                let keyspace = &keyspaces[below(2) as usize];
                match below(5) {
                    0 => batch.delete_in(keyspace, &key),
                    _ => batch.put_in(keyspace, &key, vec![number as u8; below(300) as usize]),
                };
                batch.put_in(&gone, &key, "gone");
            }
            db.write(batch).unwrap();
            if number == 100 {
                db.flush().unwrap();
            }
        }
        db.drop_keyspace("gone").unwrap();
        db.sync().unwrap();
        let contents = contents(&db);
        (db, contents)
    }

    #[test]
    fn a_replay_finds_the_same_whether_the_log_is_kept_in_memory_or_read_again_in_parts() {
        let fs = MemFs::new();
        let (db, expected) = with_log(&fs);
        let crashed = fs.crash(CrashPolicy::KeepAll);
        db.close().unwrap();
        for (image, is_closed) in [(crashed, false), (fs, true)] {
            for (budget, is_kept) in [(1 << 20, false), (4 << 20, false), (64 << 20, true)] {
                let recovered = recover(&image, Path::new("/db"), part_bytes_max(budget)).unwrap().unwrap();
                assert_eq!(recovered.kept.is_some(), is_kept, "{budget}");
                let image = || image.crash(CrashPolicy::KeepAll);
                let db = options(&image(), budget, 0).read_only().open("/db").unwrap();
                assert!(contents(&db) == expected, "for reading, with {budget}");
                for threads in [0, 1] {
                    let image = image();
                    let db = options(&image, budget, threads).open("/db").unwrap();
                    assert!(contents(&db) == expected, "with {budget}, {threads} threads");
                    let flushes = db.open_report().flushes;
                    assert_eq!(flushes == 0, is_kept, "{budget} {is_closed}");
                    let again = image.crash(CrashPolicy::DropUnsynced);
                    let db = options(&again, budget, 0).open("/db").unwrap();
                    assert!(contents(&db) == expected, "again, with {budget}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn an_opening_that_copies_a_long_log_may_be_interrupted_before_each_change() {
        let fs = MemFs::new();
        let (_db, expected) = with_log(&fs);
        let image = fs.crash(CrashPolicy::KeepAll);
        let images = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&images);
        image.observe(move |fs, op| {
            let mut taken = lock(&taken);
            let seed = taken.len() as u64;
            let policies = [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(seed)];
            taken.extend(policies.map(|policy| (format!("{:.40}", format!("{op:?}")), fs.crash(policy))));
            Ok(())
        });
        let db = options(&image, 64 << 20, 1).open("/db").unwrap();
        image.stop_observing();
        assert!(contents(&db) == expected && db.open_report().flushes == 0);
        let images = std::mem::take(&mut *lock(&images));
        assert!(images.len() > 40, "{}", images.len());
        for (op, image) in images {
            let db = options(&image, 64 << 20, 1).open("/db").unwrap();
            assert!(contents(&db) == expected, "before {op}");
        }
    }

    #[test]
    fn a_disk_without_room_for_a_copy_of_the_log_keeps_the_log() {
        let fs = MemFs::new();
        let (_db, expected) = with_log(&fs);
        let image = fs.crash(CrashPolicy::KeepAll);
        for room in [0, 1000, 300_000, 1_200_000] {
            let image = image.crash(CrashPolicy::KeepAll);
            image.set_room(Some(fs.used() + room));
            match options(&image, 64 << 20, 1).reserve_bytes(0).open("/db") {
                Ok(db) => {
                    assert!(db.open_report().full_disk.is_some() && contents(&db) == expected, "{room}");
                }
                Err(error) => assert!(room < 300_000, "{room}: {error}"),
            }
            image.set_room(None);
            let db = options(&image.crash(CrashPolicy::DropUnsynced), 64 << 20, 0).open("/db").unwrap();
            assert!(contents(&db) == expected, "{room}");
        }
    }
}
