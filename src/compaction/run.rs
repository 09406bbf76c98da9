//! The executor of flushes and compactions: reads one sorted stream and writes tables.
//!
//! ```text
//! input (a merge, or one memtable) -> retain -> table writers, one after the other -> metadata
//! ```
//!
//! A table ends at the target length, at the memory limit of the job, or when it overlaps too much of the next level
//! for a cheap compaction. For queues, whose keys are written at both ends, a table of level 0 also ends where its keys
//! skip a large part of level 1. All entries of a user key are in one table. Kept range deletes are cut directly after
//! the last user key of a table; the last table has the rest.
//!
//! On success, the caller publishes the outputs; on an error, they are removed.

use std::collections::HashSet;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::retain::{Fate, Retain};
use super::shape::Shape;
use super::table_origin::Lineage;
use crate::error::Result;
use crate::filename::FileName;
use crate::fs::Fs;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, Tag, has_shorter_next, key_after};
use crate::limits::SEQNO_MAX;
use crate::manifest::edit::LEVELS;
use crate::spans::Spans;
use crate::table::TableWriter;
use crate::table_meta::TableMeta;
use crate::version::{Run, TableHandle, Version};

pub(crate) struct Merge<'a> {
    pub(crate) fs: &'a dyn Fs,
    pub(crate) dir: &'a Path,
    pub(crate) version: &'a Version,
    pub(crate) inputs: &'a HashSet<u64>,
    pub(crate) part: (Option<&'a Bytes>, Option<&'a Bytes>),
    pub(crate) output_level: usize,
    pub(crate) shape: Shape,
    pub(crate) lineage: &'a Lineage,
    pub(crate) new_number: &'a dyn Fn() -> u64,
    pub(crate) create: &'a dyn Fn(u64) -> Result<TableWriter>,
    pub(crate) memory_max: usize,
    pub(crate) memory: &'a dyn Fn(usize),
    /// Called with the bytes read since the last call. An error ends the merge.
    pub(crate) check: &'a dyn Fn(u64) -> Result<()>,
}

const GAPS_MAX: u64 = 4;

const CHECK_INTERVAL: u32 = 1024;

const MEMORY_INTERVAL: u32 = 16;

impl Merge<'_> {
    /// The tables are durable; their directory is not synced.
    pub(crate) fn run(&self, input: &mut dyn InternalIterator, mut retain: Retain) -> Result<Vec<TableMeta>> {
        let (from, to) = self.part;
        let from = from.cloned().map_or(Bound::Unbounded, Bound::Included);
        let (created, finished) = (Vec::new(), Vec::new());
        let mut has_older = overlaps_in_order(self.version, self.newest_level()..LEVELS, self.inputs);
        let spans =
            retain.keep_spans(&mut has_older).cut(self.part.0.map(|from| &**from), to.map(|to| &**to));
        let mut outputs = Outputs { lineage: self.lineage, from, created, finished, current: None, spans };
        let to = to.cloned().map_or(Bound::Unbounded, Bound::Excluded);
        let result = self.merge(input, retain, &mut outputs);
        let result = result.and_then(|()| self.finish(&mut outputs, to));
        match result {
            Ok(()) => Ok(outputs.finished),
            Err(error) => {
                outputs.remove_all(self.fs, self.dir);
                Err(error)
            }
        }
    }

    fn merge(
        &self,
        input: &mut dyn InternalIterator,
        mut retain: Retain,
        outputs: &mut Outputs<'_>,
    ) -> Result<()> {
        let mut older_holds = holds_in_order(self.version, self.newest_level()..LEVELS, self.inputs);
        let mut overlap = Overlap::new(self.next_level(), self.overlap_max());
        let (mut since_check, mut since_look, mut bytes) = (0, 0, 0);
        let (from, to) = self.part;
        match from {
            Some(from) => input.seek(InternalKey::new(from, Tag::newest_at(SEQNO_MAX)))?,
            None => input.seek_first()?,
        }
        while let Some((key, value)) = input.lent() {
            if to.is_some_and(|to| *key.user >= **to) {
                break;
            }
            since_check += 1;
            if since_check % CHECK_INTERVAL == 0 {
                (self.check)(std::mem::take(&mut bytes))?;
            }
            bytes += key.user.len() as u64;
            if let Fate::Keep(tag) = retain.decide(key, |user_key| !older_holds(user_key)) {
                let overlaps_too_much = overlap.is_too_much(key.user);
                since_look += 1;
                if let Some(writer) = &outputs.current {
                    let is_full = overlaps_too_much || writer.file_bytes() >= self.shape.table_bytes;
                    let looks = since_look >= MEMORY_INTERVAL;
                    if (is_full || looks) && writer.last_user_key() != key.user {
                        since_look = if looks { 0 } else { since_look };
                        let may_end = ends_before_next(writer.last_user_key(), &outputs.spans);
                        if may_end && (is_full || self.uses_too_much(writer)) {
                            let last = Bytes::copy_from_slice(writer.last_user_key());
                            outputs.finish_current(Bound::Included(last))?;
                        }
                    }
                }
                if outputs.current.is_none() || self.output_level == 0 {
                    overlap.restart();
                }
                bytes += value.len();
                let writer = match &mut outputs.current {
                    Some(writer) => writer,
                    None => self.output(outputs)?,
                };
                writer.add(InternalKey::new(key.user, tag), value)?;
            }
            input.next()?;
        }
        let _ = (self.check)(bytes);
        Ok(())
    }

    fn finish(&self, outputs: &mut Outputs<'_>, to: Bound<Bytes>) -> Result<()> {
        if !outputs.spans.is_empty() {
            self.output(outputs)?;
        }
        outputs.finish_current(to)
    }

    /// The first level that may hold entries older than the inputs. All tables from there on, except the inputs, are
    /// checked before a tombstone is dropped or a number set to 0. A flush or a merge within level 0 checks all levels.
    fn newest_level(&self) -> usize {
        if self.output_level == 0 {
            return 0;
        }
        let mut tables = self.version.all_tables();
        let newest_input = tables.find(|(_, table)| self.inputs.contains(&table.meta.number));
        newest_input.map_or(0, |(level, _)| level + 1)
    }

    fn uses_too_much(&self, writer: &TableWriter) -> bool {
        let bytes = writer.memory_bytes();
        (self.memory)(bytes);
        bytes >= self.memory_max
    }

    #[cold]
    #[inline(never)]
    fn output<'w>(&self, outputs: &'w mut Outputs<'_>) -> Result<&'w mut TableWriter> {
        if outputs.current.is_none() {
            (self.check)(0)?;
            let number = (self.new_number)();
            outputs.current = Some((self.create)(number)?);
            outputs.created.push(number);
        }
        Ok(outputs.current.as_mut().expect("an output was just started"))
    }

    fn next_level(&self) -> &[Arc<TableHandle>] {
        let level = self.output_level + 1;
        let runs = if level < LEVELS { self.version.runs(level) } else { &[] };
        runs.first().map_or(&[], |run| &run.tables)
    }

    /// Maximum bytes of the next level that an output overlaps. In level 0: that two successive keys of an output skip.
    fn overlap_max(&self) -> u64 {
        match self.output_level {
            0 => (self.version.bytes(1) / GAPS_MAX).max(2 * self.shape.table_bytes),
            _ => self.shape.overlap_max(),
        }
    }
}

/// Whether the table can end after `last`. It cannot if a span would be cut there and the next possible key is shorter
/// ([`has_shorter_next`]): the end of the span would count as a key of the table.
fn ends_before_next(last: &[u8], spans: &Spans) -> bool {
    !has_shorter_next(last) || spans.covering(last, SEQNO_MAX).is_none()
}

struct Outputs<'a> {
    lineage: &'a Lineage,
    from: Bound<Bytes>,
    created: Vec<u64>,
    finished: Vec<TableMeta>,
    current: Option<TableWriter>,
    spans: Spans,
}

impl Outputs<'_> {
    fn finish_current(&mut self, to: Bound<Bytes>) -> Result<()> {
        if let Some(mut writer) = self.current.take() {
            let next = match &to {
                Bound::Included(last) => Bound::Excluded(last.clone()),
                _ => Bound::Unbounded,
            };
            if !self.spans.is_empty() {
                let next = match &to {
                    Bound::Included(last) => key_after(last),
                    _ => None,
                };
                writer.set_spans(self.spans.cut(None, next.as_deref()));
                self.spans = next.map_or_else(Spans::default, |next| self.spans.cut(Some(&next), None));
            }
            let from = std::mem::replace(&mut self.from, next);
            writer.set_origin(self.lineage.origin(from, to));
            self.finished.push(writer.finish()?);
        }
        Ok(())
    }

    /// If a removal fails, the next opening removes the rest.
    fn remove_all(self, fs: &dyn Fs, dir: &Path) {
        drop(self.current);
        for number in self.created {
            let _ = fs.remove(&FileName::Table(number).path(dir));
        }
    }
}

fn holds_in_order<'a>(
    version: &'a Version,
    levels: Range<usize>,
    skipped: &'a HashSet<u64>,
) -> impl FnMut(&[u8]) -> bool + use<'a> {
    let tables =
        |run: &'a Run| run.tables.iter().filter(|table| !skipped.contains(&table.meta.number)).peekable();
    let mut runs: Vec<_> = levels.flat_map(|level| version.runs(level)).map(tables).collect();
    runs.retain_mut(|tables| tables.peek().is_some());
    move |user_key| {
        runs.iter_mut().any(|tables| {
            while tables.next_if(|table| &table.meta.largest[..] < user_key).is_some() {}
            tables.peek().is_some_and(|table| &table.meta.smallest[..] <= user_key)
        })
    }
}

fn overlaps_in_order<'a>(
    version: &'a Version,
    levels: Range<usize>,
    skipped: &'a HashSet<u64>,
) -> impl FnMut(&[u8], Option<&[u8]>) -> bool + use<'a> {
    move |start, end| {
        levels.clone().flat_map(|level| version.runs(level)).any(|run| {
            let before = |key: &[u8]| key < start;
            let after = |key: &[u8]| end.is_some_and(|end| key >= end);
            let mut part = run.between(before, after).map(|at| &run.tables[at]);
            part.any(|table| !skipped.contains(&table.meta.number))
        })
    }
}

struct Overlap<'a> {
    tables: &'a [Arc<TableHandle>],
    bytes: u64,
    limit: u64,
}

impl<'a> Overlap<'a> {
    fn new(tables: &'a [Arc<TableHandle>], limit: u64) -> Self {
        Self { tables, bytes: 0, limit }
    }

    fn is_too_much(&mut self, user_key: &[u8]) -> bool {
        while let Some(table) = self.tables.first().filter(|table| &table.meta.largest[..] < user_key) {
            self.bytes = self.bytes.saturating_add(table.meta.len);
            self.tables = &self.tables[1..];
        }
        self.bytes > self.limit
    }

    fn restart(&mut self) {
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;
    use std::path::PathBuf;

    use super::*;
    use crate::block::Compression;
    use crate::error::Error;
    use crate::fs::MemFs;
    use crate::key::{EntryKind, SeqNo, Tag};
    use crate::merge::vec_iter::{Entry, VecIter};
    use crate::spans::{RangeDelete, fragment};
    use crate::table::TableConfig;
    use crate::version::handle;

    const DIR: &str = "/db";

    fn put(user: &str, seqno: SeqNo, value_bytes: usize) -> Entry {
        (user.into(), Tag::new(seqno, EntryKind::Put), vec![7; value_bytes])
    }

    fn delete(user: &str, seqno: SeqNo) -> Entry {
        (user.into(), Tag::new(seqno, EntryKind::Delete), Vec::new())
    }

    /// Merges entries into a level of a tree with these tables. Returns the outputs and the files on disk.
    fn run(
        version: &Version,
        output_level: usize,
        input: VecIter,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> (Result<Vec<TableMeta>>, Vec<PathBuf>) {
        run_at(Vec::new(), version, output_level, input, check)
    }

    fn run_at(
        snapshots: Vec<SeqNo>,
        version: &Version,
        output_level: usize,
        input: VecIter,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> (Result<Vec<TableMeta>>, Vec<PathBuf>) {
        run_in(1 << 30, snapshots, version, output_level, input, check)
    }

    fn run_in(
        memory_max: usize,
        snapshots: Vec<SeqNo>,
        version: &Version,
        output_level: usize,
        input: VecIter,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> (Result<Vec<TableMeta>>, Vec<PathBuf>) {
        run_retaining(memory_max, Retain::new(snapshots), version, output_level, input, check)
    }

    fn run_retaining(
        memory_max: usize,
        retain: Retain,
        version: &Version,
        output_level: usize,
        mut input: VecIter,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> (Result<Vec<TableMeta>>, Vec<PathBuf>) {
        let fs = MemFs::new();
        let dir = Path::new(DIR);
        fs.create_dir(dir).unwrap();
        let next = Cell::new(100);
        let create = |number| {
            let config = TableConfig {
                number,
                store_id: [0; 16],
                file_id: [number as u8; 16],
                hash_seed: 0,
                block_bytes: 512,
                compression: Compression::None,
                filter: None,
                append_bytes: crate::table::APPEND_BYTES,
            };
            TableWriter::create(&fs, &FileName::Table(number).path(dir), config)
        };
        let shape = Shape { l0_runs: 4, level_base_bytes: 1 << 20, level_ratio: 10, table_bytes: 4 << 10 };
        let new_number = || next.replace(next.get() + 1);
        // A compaction into a level takes all tables above it.
        let above = version.all_tables().filter(|(level, _)| *level <= output_level && output_level > 0);
        let inputs = above.map(|(_, table)| table.meta.number).collect();
        let merge = Merge {
            fs: &fs,
            dir,
            version,
            inputs: &inputs,
            part: (None, None),
            output_level,
            shape,
            lineage: &Lineage::default(),
            new_number: &new_number,
            create: &create,
            memory_max,
            memory: &|_| {},
            check,
        };
        let outputs = merge.run(&mut input, retain);
        let files = fs.files(dir).into_iter().map(|(path, _)| path).collect();
        (outputs, files)
    }

    fn never(_: u64) -> Result<()> {
        Ok(())
    }

    fn bounds(outputs: &[TableMeta]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        outputs.iter().map(|meta| (text(&meta.smallest), text(&meta.largest))).collect()
    }

    #[test]
    fn outputs_are_cut_when_they_take_too_much_memory_whatever_is_dropped_between_them() {
        let merged = |memory_max, versions: u64| {
            let keys = 0..200;
            let entries =
                keys.flat_map(|n| (0..versions).map(move |seqno| put(&format!("{n:03}"), seqno, 10)));
            let input = VecIter::new(entries.collect());
            let version = Version::default();
            let (outputs, _) = run_in(memory_max, Vec::new(), &version, 1, input, &never);
            outputs.unwrap().iter().map(|meta| meta.entries).collect::<Vec<_>>()
        };
        let cut = merged(512, 1);
        assert!(cut.len() > merged(1 << 30, 1).len(), "{cut:?}");
        assert!([2, 3, 16, 32].iter().all(|versions| merged(512, *versions) == cut));
    }

    #[test]
    fn outputs_are_cut_at_their_length_but_never_inside_a_user_key() {
        let mut entries: Vec<Entry> = (0..100).map(|n| put(&format!("{n:03}"), 1, 200)).collect();
        entries.extend((2..100).map(|seqno| put("050", seqno, 200)));
        let every_version: Vec<SeqNo> = (0..100).collect();
        let (outputs, files) = run_at(every_version, &Version::default(), 1, VecIter::new(entries), &never);
        let outputs = outputs.unwrap();
        assert_eq!(files.len(), outputs.len());
        assert!(outputs.windows(2).all(|pair| pair[0].largest < pair[1].smallest), "{:?}", bounds(&outputs));
        assert_eq!(outputs.iter().map(|meta| meta.entries).sum::<u64>(), 198);
        let lengths: Vec<u64> = outputs.iter().map(|meta| meta.len).collect();
        assert_eq!(
            lengths.iter().filter(|&&len| len > 6 << 10).count(),
            1,
            "{lengths:?}: one key needs more"
        );
    }

    #[test]
    fn an_output_that_overlaps_too_much_of_the_next_level_is_cut() {
        // The limit is ten tables of 4 KiB; two of these tables exceed it.
        let below = (0..10).map(|n| (2, 0, handle(n + 1, &format!("{n}a"), &format!("{n}z"), 30 << 10)));
        let version = Version::default().apply(&HashSet::new(), below.collect());
        let entries = (0..10).map(|n| put(&format!("{n}m"), 1, 1)).collect();
        let (outputs, _) = run(&version, 1, VecIter::new(entries), &never);
        let expected = [("0m", "1m"), ("2m", "3m"), ("4m", "5m"), ("6m", "7m"), ("8m", "9m")];
        assert_eq!(bounds(&outputs.unwrap()), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_flush_ends_a_table_where_its_keys_leave_out_a_good_part_of_level_1() {
        let level_1 = (0..8).map(|n| (1, 0, handle(n + 1, &format!("{n}a"), &format!("{n}z"), 4 << 10)));
        let version = Version::default().apply(&HashSet::new(), level_1.collect());
        let keys = ["0c", "1c", "2c", "6c", "7c", "8c"];
        let entries = || VecIter::new(keys.iter().map(|key| put(key, 1, 1)).collect());
        let (outputs, _) = run(&version, 0, entries(), &never);
        let expected = [("0c", "2c"), ("6c", "8c")];
        assert_eq!(bounds(&outputs.unwrap()), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let (outputs, _) = run(&Version::default(), 0, entries(), &never);
        assert_eq!(outputs.unwrap().len(), 1);
    }

    #[test]
    fn tombstones_go_where_nothing_older_lies_below_and_stay_where_it_may() {
        let below = vec![(2, 0, handle(1, "c", "d", 10))];
        let version = Version::default().apply(&HashSet::new(), below);
        let entries = || VecIter::new(vec![delete("b", 5), delete("c", 5), put("c", 4, 1), put("e", 3, 1)]);
        let (outputs, _) = run(&version, 1, entries(), &never);
        let outputs = outputs.unwrap();
        assert_eq!(bounds(&outputs), [("c".to_owned(), "e".to_owned())]);
        assert_eq!((outputs[0].entries, outputs[0].tombstones), (2, 1));
        assert_eq!((outputs[0].seqno_min, outputs[0].seqno_max), (0, 5), "the put of e needs no number");
        let (outputs, _) = run(&version, 2, entries(), &never);
        assert_eq!(
            bounds(&outputs.unwrap()),
            [("e".to_owned(), "e".to_owned())],
            "level 2 is the input's own"
        );
    }

    #[test]
    fn nothing_is_left_of_an_attempt_that_fails_or_is_stopped() {
        let entries = || (0..5000).map(|n| put(&format!("{n:05}"), 1, 100)).collect::<Vec<_>>();
        let (outputs, files) = run(&Version::default(), 1, VecIter::new(entries()).failing_at(3000), &never);
        assert!(outputs.is_err());
        assert_eq!(files, [] as [PathBuf; 0]);
        let asked = RefCell::new(0);
        let check = |_: u64| {
            *asked.borrow_mut() += 1;
            if *asked.borrow() > 2 { Err(Error::Cancelled) } else { Ok(()) }
        };
        let (outputs, files) = run(&Version::default(), 1, VecIter::new(entries()), &check);
        assert!(matches!(outputs, Err(Error::Cancelled)));
        assert_eq!(files, [] as [PathBuf; 0]);
    }

    #[test]
    fn spans_are_cut_right_behind_the_last_key_of_a_table_and_the_rest_gets_a_table_of_its_own() {
        let version = Version::default();
        let below = handle(7, "a", "zz", 1000);
        let version = version.apply(&HashSet::new(), vec![(2, 0, below)]);
        let span = |start: &str, end: Option<&str>, seqno| RangeDelete {
            start: start.as_bytes().into(),
            end: end.map(|end| end.as_bytes().into()),
            seqno,
        };
        let entries = (0..60).map(|n| put(&format!("k{n:02}"), 50, 400)).collect();
        let deletes = [span("b", Some("k05x"), 9), span("k05x", None, 8), span("m", Some("n"), 60)];
        let spans = Arc::new(fragment(deletes, &[]));
        let run = |entries, spans| {
            let retain = Retain::new(Vec::new()).with_spans(spans);
            run_retaining(1 << 30, retain, &version, 1, VecIter::new(entries), &|_| Ok(())).0.unwrap()
        };
        let outputs = run(entries, spans);
        let edges: Vec<_> = outputs
            .iter()
            .map(|meta| {
                let spans = meta.spans.as_ref().expect("all are under a span");
                let text = |key: &Bytes| String::from_utf8(key.to_vec()).unwrap();
                (text(&spans.start), text(&spans.end), text(&meta.smallest))
            })
            .collect();
        assert!(edges.len() > 2 && edges[0].0 == "b" && edges[0].2 == "b", "{edges:?}");
        assert!(
            edges.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].1.ends_with('\0')),
            "{edges:?}"
        );
        assert_eq!(edges.last().unwrap().1, "", "no end");
        assert!(outputs.windows(2).all(|pair| pair[0].largest < pair[1].smallest), "bounds do not overlap");
        // A span that has no entries after it is in a separate table.
        let spans = Arc::new(fragment([span("b", Some("c"), 9)], &[]));
        let alone = run(Vec::new(), spans);
        assert_eq!(
            alone.iter().map(|meta| (meta.entries, meta.spans.is_some())).collect::<Vec<_>>(),
            [(0, true)]
        );
    }

    #[test]
    fn a_merge_of_nothing_makes_no_table() {
        let (outputs, files) = run(&Version::default(), 1, VecIter::new(vec![delete("a", 1)]), &never);
        assert_eq!(outputs.unwrap(), []);
        assert_eq!(files, [] as [PathBuf; 0]);
    }
}
