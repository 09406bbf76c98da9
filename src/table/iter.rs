//! A cursor over all entries of a table, in both directions.
//!
//! It has one block cursor per level: root of the index, partitions, data block. At the end of a data block, the lowest
//! index cursor with a further entry moves, and the blocks below it are loaded. A seek finds the data block like a
//! lookup. The index cursors are placed only when the iterator leaves this block.
//!
//! On each level, the offsets of blocks must ascend forward and descend backward, so every scan ends.

use std::mem;
use std::sync::Arc;

use crate::block::{BlockHandle, BlockIter, BlockKind, BlockValues};
use crate::error::{Error, Result, Step};
use crate::iter::{EntryValue, Failure, InternalIterator, LentValue};
use crate::key::{InternalKey, key_prefix};

use super::index::past_separator;
use super::read_ahead::ReadAhead;
use super::reader::Table;

const SCAN_AHEAD_BYTES: u64 = 512 << 10;

/// The read-ahead of compactions and filter builds, which cache no blocks.
const MERGE_AHEAD_BYTES: u64 = 1 << 20;

/// A scan is long once it has read this fraction of the memory budget from a table without a gap. It then fills the
/// cache at most to half.
const LONG_SCAN_PARTS: usize = 64;

#[derive(Debug)]
pub(crate) struct TableIter {
    table: Arc<Table>,
    fill_cache: bool,
    /// Empty before the first use.
    index: Vec<Level>,
    /// Whether the index cursors lead to the data block.
    is_placed: bool,
    /// Empty while the iterator is invalid.
    data: Level,
    ahead: ReadAhead,
    failure: Failure,
}

#[derive(Debug)]
struct Level {
    block: u64,
    entries: BlockIter,
}

impl Level {
    fn new(values: BlockValues) -> Self {
        Self { block: 0, entries: BlockIter::closed(values) }
    }
}

#[derive(Clone, Copy)]
enum Goal<'a> {
    First,
    Last,
    AtOrAfter(InternalKey<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Table {
    pub(crate) fn iter(self: &Arc<Self>, fill_cache: bool) -> TableIter {
        let ahead_max = if fill_cache { SCAN_AHEAD_BYTES } else { MERGE_AHEAD_BYTES };
        TableIter {
            table: Arc::clone(self),
            fill_cache,
            index: Vec::new(),
            is_placed: false,
            data: Level::new(BlockValues::Data),
            ahead: ReadAhead::new(ahead_max, self.properties.data_end),
            failure: Failure::default(),
        }
    }
}

impl TableIter {
    #[inline(always)]
    fn movement(&mut self, run: impl FnOnce(&mut Self) -> Step) -> Step {
        self.failure.repeat()?;
        let Level { block, entries } = match run(self) {
            Ok(()) => &self.data,
            Err(error) => return self.fail(error),
        };
        match entries.chunks() {
            None => Ok(()),
            Some(chunks) => {
                let checked =
                    chunks.check(*block).map_err(|error| self.table.file.error_in_block(error, *block));
                checked.or_else(|error| self.fail(error.into()))
            }
        }
    }

    #[cold]
    fn fail(&mut self, error: Box<Error>) -> Step {
        self.data.entries.close();
        self.failure.keep(error)
    }

    fn depth(&self) -> usize {
        self.table.footer.index_depth.into()
    }

    fn level(&mut self, level: usize) -> &mut Level {
        self.index.get_mut(level).unwrap_or(&mut self.data)
    }

    fn open_root(&mut self) -> Result<()> {
        let Some(root) = self.index.first_mut().filter(|root| root.entries.is_closed()) else {
            return Ok(());
        };
        root.block = self.table.footer.root.offset;
        let opened = root.entries.open(self.table.index.root(&self.table.file, &self.table.footer)?);
        opened.map_err(|error| self.table.file.error_in_block(error, root.block))
    }

    fn stand(&mut self, level: usize, goal: Goal<'_>) -> Result<bool> {
        let Level { block, entries } = self.level(level);
        let moved = match goal {
            Goal::First => entries.seek_first(),
            Goal::Last => entries.seek_last(),
            Goal::AtOrAfter(target) => entries.seek(target),
        };
        let (valid, block) = (entries.is_valid(), *block);
        moved.map_err(|error| self.table.file.error_in_block(*error, block))?;
        Ok(valid)
    }

    /// Returns the block of `level` at the cursor of the level above. `walk` is the direction of a walk that has left
    /// the previous block.
    fn below(&mut self, level: usize, walk: Option<Direction>) -> Result<BlockHandle> {
        let parent = &self.index[level - 1];
        let handle = BlockHandle::decode(parent.entries.value())
            .map_err(|error| self.table.file.error_in_block(error, parent.block))?;
        let (parent, from) = (parent.block, self.level(level).block);
        let out_of_order = match walk {
            Some(Direction::Forward) => handle.offset <= from,
            Some(Direction::Backward) => handle.offset >= from,
            None => false,
        };
        let file = &self.table.file;
        if out_of_order {
            let detail = format!("the block at {} is out of order", handle.offset);
            return Err(file.corrupt(parent, "index block", detail));
        }
        Ok(handle)
    }

    fn enter(&mut self, level: usize, handle: BlockHandle) -> Result<()> {
        let file = &self.table.file;
        let payload = match level == self.depth() {
            true => {
                let memory = &file.ctx.memory;
                let is_long = self.ahead.passed() >= (memory.budget() / LONG_SCAN_PARTS) as u64;
                let fill_cache = self.fill_cache && !(is_long && memory.blocks().is_half_full());
                let read = || self.ahead.read(file, handle);
                file.block_by(handle, BlockKind::Data, fill_cache, read)?
            }
            false => file.block(handle, BlockKind::Index, self.fill_cache)?,
        };
        let entered = if level == self.depth() { &mut self.data } else { &mut self.index[level] };
        entered.block = handle.offset;
        let opened = entered.entries.open(payload);
        opened.map_err(|error| self.table.file.error_in_block(error, handle.offset))
    }

    fn descend(&mut self, goal: Goal<'_>) -> Result<bool> {
        self.data.entries.close();
        let Some(handle) = self.descend_index(goal)? else { return Ok(false) };
        self.enter(self.depth(), handle)?;
        self.stand(self.depth(), goal)?;
        Ok(true)
    }

    /// Returns the data block to which the placed index leads.
    fn descend_index(&mut self, goal: Goal<'_>) -> Result<Option<BlockHandle>> {
        if self.index.is_empty() {
            self.index = (0..self.depth()).map(|_| Level::new(BlockValues::Index)).collect();
        }
        self.is_placed = true;
        self.open_root()?;
        let mut found = None;
        for level in 0..self.index.len() {
            if !self.stand(level, goal)? {
                let block = self.index[level].block;
                return if level == 0 { Ok(None) } else { Err(past_separator(&self.table.file, block)) };
            }
            let handle = self.below(level + 1, None)?;
            if level + 1 < self.index.len() {
                self.enter(level + 1, handle)?;
            }
            found = Some(handle);
        }
        Ok(found)
    }

    /// As [`TableIter::descend`], without the index cursors.
    fn seek_in_block(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.data.entries.close();
        let Table { index, file, footer, .. } = &*self.table;
        let Some(handle) = index.find_data_block(file, footer, target)? else { return Ok(false) };
        self.is_placed = false;
        self.enter(self.depth(), handle)?;
        self.stand(self.depth(), Goal::AtOrAfter(target))?;
        Ok(true)
    }

    /// Seeks the first key of the data block in the index.
    #[cold]
    fn place_index(&mut self) -> Result<()> {
        let mut data = mem::replace(&mut self.data, Level::new(BlockValues::Data));
        let first = data.entries.seek_first();
        first.map_err(|error| self.table.file.error_in_block(*error, data.block))?;
        let found = match data.entries.key() {
            Some(first) => self.descend_index(Goal::AtOrAfter(first))?,
            None => None,
        };
        self.data = data;
        if found.is_none_or(|found| found.offset != self.data.block) {
            let detail = "it is not where its keys are in the index";
            return Err(self.table.file.corrupt(self.data.block, "data block", detail));
        }
        Ok(())
    }

    #[inline(never)]
    fn step_block(&mut self, direction: Direction) -> Step {
        if !self.is_placed {
            self.place_index()?;
        }
        self.data.entries.close();
        let Some(moved) = self.step_index(direction)? else {
            self.ahead.release();
            return Ok(());
        };
        let goal = match direction {
            Direction::Forward => Goal::First,
            Direction::Backward => Goal::Last,
        };
        for level in moved + 1..=self.index.len() {
            let handle = self.below(level, Some(direction))?;
            self.enter(level, handle)?;
            self.stand(level, goal)?;
        }
        Ok(())
    }

    fn step_index(&mut self, direction: Direction) -> Result<Option<usize>> {
        for (number, level) in self.index.iter_mut().enumerate().rev() {
            let moved = match direction {
                Direction::Forward => level.entries.next(),
                Direction::Backward => level.entries.prev(),
            };
            moved.map_err(|error| self.table.file.error_in_block(*error, level.block))?;
            if level.entries.is_valid() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    #[inline(always)]
    fn step(&mut self, direction: Direction) -> Step {
        let entries = &mut self.data.entries;
        if !entries.is_valid() {
            return Ok(());
        }
        let stepped = match direction {
            Direction::Forward => entries.next(),
            Direction::Backward => entries.prev(),
        };
        match stepped {
            Ok(()) if entries.is_valid() => Ok(()),
            Ok(()) => self.step_block(direction),
            Err(error) => Err(self.table.file.error_in_block(*error, self.data.block).into()),
        }
    }

    /// Fails if the keys are out of order: a caller that seeks until the target is passed would never end.
    fn check_passed(&self, has_passed: impl FnOnce(InternalKey<'_>) -> bool) -> Step {
        if self.key().is_none_or(has_passed) {
            return Ok(());
        }
        let detail = "its keys are not in order with their separators or the neighbouring block";
        Err(self.table.file.corrupt(self.data.block, "data block", detail).into())
    }
}

impl InternalIterator for TableIter {
    fn seek_first(&mut self) -> Step {
        self.movement(|iter| Ok(iter.descend(Goal::First).map(drop)?))
    }

    fn seek_last(&mut self) -> Step {
        self.movement(|iter| Ok(iter.descend(Goal::Last).map(drop)?))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.movement(|iter| {
            let in_block = match iter.fill_cache {
                true => iter.seek_in_block(target)?,
                false => iter.descend(Goal::AtOrAfter(target))?,
            };
            // The target is after the block's last key, but not after its separator: the next block has the answer.
            if !in_block || iter.data.entries.is_valid() {
                return Ok(());
            }
            iter.step_block(Direction::Forward)?;
            iter.check_passed(|key| key >= target)
        })
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.movement(|iter| {
            if !iter.descend(Goal::AtOrAfter(target))? {
                iter.descend(Goal::Last)?;
                return iter.check_passed(|key| key < target);
            }
            if !iter.data.entries.is_valid() {
                iter.stand(iter.depth(), Goal::Last)?;
                return iter.check_passed(|key| key < target);
            }
            iter.step(Direction::Backward)?;
            iter.check_passed(|key| key < target)
        })
    }

    #[inline(always)]
    fn next(&mut self) -> Step {
        self.movement(|iter| iter.step(Direction::Forward))
    }

    #[inline(always)]
    fn prev(&mut self) -> Step {
        self.movement(|iter| iter.step(Direction::Backward))
    }

    #[inline(always)]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.data.entries.key()
    }

    #[inline(always)]
    fn value(&self) -> EntryValue {
        match self.data.entries.chunks() {
            None => EntryValue::Inline(self.data.entries.value_bytes()),
            Some(chunks) => EntryValue::Chunked(self.table.chunks(chunks, self.data.block)),
        }
    }

    #[inline(always)]
    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        let key = self.data.entries.key()?;
        let value = match self.data.entries.chunks() {
            None => LentValue::Inline(self.data.entries.value()),
            Some(chunks) => LentValue::Chunked(self.table.chunks(chunks, self.data.block)),
        };
        Some((key, value))
    }

    #[inline(always)]
    fn block(&self) -> Option<&BlockIter> {
        Some(&self.data.entries)
    }

    #[inline(always)]
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        if let Some(limit) = limit {
            if !self.is_placed {
                return None;
            }
            let separator = self.index.last()?.entries.key()?;
            if key_prefix(separator.user) >= limit {
                return None;
            }
        }
        Some(&mut self.data.entries)
    }

    fn out_of_order(&self) -> Box<Error> {
        let detail = "its keys are not in order, or not with the neighbouring block";
        self.table.file.corrupt(self.data.block, "data block", detail).into()
    }
}
