//! A cursor over all entries of a table, in both directions.
//!
//! It holds one block cursor per level: the root of the index, its partitions if there are any, a data block.
//! A step moves the data cursor. At the end of its block, the lowest index cursor that has a further entry
//! moves, and the blocks below it are loaded.
//!
//! Invariants: on each level, blocks are visited in the order of their offsets, forward ascending and
//! backward descending; an index in another order is corrupt. So every walk ends, whatever the index says.
//! After an error every movement fails with the same error.

use std::sync::Arc;

use crate::block::{BlockHandle, BlockIter, BlockKind, BlockValues};
use crate::error::{Error, Result};
use crate::iter::{EntryValue, InternalIterator};
use crate::key::InternalKey;

use super::reader::Table;

/// An [`InternalIterator`] over a table. Made by [`Table::iter`].
#[derive(Debug)]
pub(crate) struct TableIter {
    table: Arc<Table>,
    fill_cache: bool,
    /// From the root (0) down; reaches the data block while the iterator is valid.
    levels: Vec<Level>,
    valid: bool,
    failed: Option<Error>,
}

#[derive(Debug)]
struct Level {
    /// Offset of the block in the file.
    block: u64,
    entries: BlockIter,
}

/// Where to position the cursor in a block that was just entered.
#[derive(Clone, Copy)]
enum Goal<'a> {
    First,
    Last,
    /// The first entry at or after this.
    AtOrAfter(InternalKey<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl TableIter {
    pub(super) fn new(table: Arc<Table>, fill_cache: bool) -> Self {
        Self { table, fill_cache, levels: Vec::new(), valid: false, failed: None }
    }

    /// Runs one movement and keeps its error.
    fn movement(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let done = run(self).and_then(|()| match (self.valid, self.levels.last()) {
            (true, Some(data)) => self.table.check_value(&data.entries, data.block),
            _ => Ok(()),
        });
        if let Err(error) = &done {
            self.valid = false;
            self.failed = Some(error.clone());
        }
        done
    }

    fn depth(&self) -> usize {
        usize::from(self.table.footer.index_depth)
    }

    /// Leaves only the root in `levels` and positions it; `false` if there is no such entry.
    fn enter_root(&mut self, goal: Goal<'_>) -> Result<bool> {
        self.valid = false;
        let block = self.table.footer.root.offset;
        self.levels.truncate(1);
        if self.levels.is_empty() {
            let entries = BlockIter::new(self.table.root()?, BlockValues::Index)
                .map_err(|error| self.table.file.error_in_block(error, block))?;
            self.levels.push(Level { block, entries });
        }
        self.stand(goal)
    }

    /// Positions the cursor in the lowest loaded block.
    fn stand(&mut self, goal: Goal<'_>) -> Result<bool> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        match goal {
            Goal::First => level.entries.seek_first(),
            Goal::Last => level.entries.seek_last(),
            Goal::AtOrAfter(target) => level.entries.seek(target),
        }
        .map_err(|error| self.table.file.error_in_block(error, level.block))?;
        Ok(level.entries.is_valid())
    }

    /// Loads the block that the lowest loaded index block refers to. In a walk, `after` is the block of that
    /// level that the walk leaves.
    fn enter_child(&mut self, after: Option<(Direction, u64)>) -> Result<()> {
        let Some(parent) = self.levels.last() else { return Ok(()) };
        let file = &self.table.file;
        let handle = BlockHandle::decode(parent.entries.value())
            .map_err(|error| file.error_in_block(error, parent.block))?;
        let out_of_order = match after {
            Some((Direction::Forward, from)) => handle.offset <= from,
            Some((Direction::Backward, from)) => handle.offset >= from,
            None => false,
        };
        if out_of_order {
            let detail = format!("the block at {} does not stand in order", handle.offset);
            return Err(file.corrupt(parent.block, "index block", detail));
        }
        let (kind, rule) = match self.levels.len() == self.depth() {
            true => (BlockKind::Data, BlockValues::Data),
            false => (BlockKind::Index, BlockValues::Index),
        };
        let payload = file.block(handle, kind, self.fill_cache)?;
        let entries =
            BlockIter::new(payload, rule).map_err(|error| file.error_in_block(error, handle.offset))?;
        self.levels.push(Level { block: handle.offset, entries });
        Ok(())
    }

    /// Goes from the root down to a data block, and positions the cursor of each level by `goal`.
    fn descend(&mut self, goal: Goal<'_>) -> Result<()> {
        if !self.enter_root(goal)? {
            return Ok(());
        }
        while self.levels.len() <= self.depth() {
            self.enter_child(None)?;
            self.valid = self.stand(goal)?;
            if !self.valid && self.levels.len() <= self.depth() {
                return Err(self.past_separator());
            }
        }
        Ok(())
    }

    fn past_separator(&self) -> Error {
        let block = self.levels.last().map_or(0, |level| level.block);
        self.table.past_separator(block)
    }

    /// Moves from the end of a data block to the next block in this direction.
    fn step_block(&mut self, direction: Direction) -> Result<()> {
        self.valid = false;
        let mut left = Vec::new();
        while let Some(level) = self.levels.last_mut() {
            // The data level is always left; an index level only if it has no further entry.
            if !left.is_empty() {
                match direction {
                    Direction::Forward => level.entries.next(),
                    Direction::Backward => level.entries.prev(),
                }
                .map_err(|error| self.table.file.error_in_block(error, level.block))?;
                if level.entries.is_valid() {
                    break;
                }
            }
            left.push(level.block);
            self.levels.pop();
        }
        if self.levels.is_empty() {
            return Ok(());
        }
        let goal = match direction {
            Direction::Forward => Goal::First,
            Direction::Backward => Goal::Last,
        };
        while let Some(from) = left.pop() {
            self.enter_child(Some((direction, from)))?;
            self.stand(goal)?;
        }
        self.valid = true;
        Ok(())
    }

    fn data(&mut self) -> Option<&mut Level> {
        self.levels.last_mut()
    }
}

impl InternalIterator for TableIter {
    fn seek_first(&mut self) -> Result<()> {
        self.movement(|iter| iter.descend(Goal::First))
    }

    fn seek_last(&mut self) -> Result<()> {
        self.movement(|iter| iter.descend(Goal::Last))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.movement(|iter| {
            iter.descend(Goal::AtOrAfter(target))?;
            // The target is after the last key of a block and before its separator: the next block begins
            // with the answer.
            match iter.valid || iter.levels.len() <= iter.depth() {
                true => Ok(()),
                false => iter.step_block(Direction::Forward),
            }
        })
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.movement(|iter| {
            iter.descend(Goal::AtOrAfter(target))?;
            if iter.levels.len() <= iter.depth() {
                return iter.descend(Goal::Last);
            }
            match iter.valid {
                true => iter.step(Direction::Backward),
                // All keys of this block are before the target.
                false => {
                    iter.valid = iter.stand(Goal::Last)?;
                    Ok(())
                }
            }
        })
    }

    fn next(&mut self) -> Result<()> {
        self.movement(|iter| iter.step(Direction::Forward))
    }

    fn prev(&mut self) -> Result<()> {
        self.movement(|iter| iter.step(Direction::Backward))
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        if !self.valid {
            return None;
        }
        self.levels.last().and_then(|data| data.entries.key())
    }

    fn value(&self) -> EntryValue {
        match self.levels.last() {
            Some(data) if self.valid => self.table.value(&data.entries, data.block),
            _ => EntryValue::Inline(bytes::Bytes::new()),
        }
    }
}

impl TableIter {
    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        let Some(data) = self.data() else { return Ok(()) };
        let block = data.block;
        let stepped = match direction {
            Direction::Forward => data.entries.next(),
            Direction::Backward => data.entries.prev(),
        };
        let valid = data.entries.is_valid();
        stepped.map_err(|error| self.table.file.error_in_block(error, block))?;
        if valid { Ok(()) } else { self.step_block(direction) }
    }
}
