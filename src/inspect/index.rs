//! The index of a table, followed beside the walk over its blocks.
//!
//! For each level of the index a [`Cursor`] gives what its blocks refer to, in the order of the index. The walk meets
//! blocks in the order of the file, and the format says that on each level the two orders are one. So:
//!
//! 1. A data block that the walk meets is what the lowest level refers to next. Its first key lies behind the separator
//!    before it, its last key not behind its own.
//! 2. An index block is what one of the levels above refers to next, or the root, which is the last of them.
//! 3. At the end nothing is referred to any more, and the last separator is the last user key with tag 0.
//!
//! A separator on an upper level is the last one of the block it refers to: between the two a lookup would find
//! nothing and take that for damage.
//!
//! The first thing that is wrong is kept, and told at the end: if a block was damaged the walk has told of it, and
//! what follows from that is not worth a word.
//!
//! Memory: an index block for each level above the blocks that are met; at most ten.

use super::block::Broken;
use super::out::{Out, Result};
use super::window::Window;
use crate::block::{self, BlockHandle, BlockIter, BlockKind, BlockValues};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::key::{InternalKey, Tag};
use crate::table::Footer;

/// A user key and a tag.
pub(super) type Key = (Vec<u8>, Tag);

/// The index, as far as the walk has come.
pub(super) struct Index {
    root: BlockHandle,
    /// From the root down; what the last one gives are data blocks.
    levels: Vec<Cursor>,
    /// The separator of the data block before.
    before: Option<Key>,
    /// Blocks that were met and referred to: data, index without the root.
    data: u64,
    index: u64,
    met_root: bool,
    wrong: Option<DecodeError>,
}

impl Index {
    pub(super) fn new(footer: &Footer, blocks_end: u64) -> Self {
        let cursor = |levels| Cursor {
            file_id: footer.file_id,
            blocks_end,
            root: Some(footer.root),
            levels,
            ends: vec![0; levels],
            way: Vec::new(),
        };
        Self {
            root: footer.root,
            levels: (1..=usize::from(footer.index_depth)).map(cursor).collect(),
            before: None,
            data: 0,
            index: 0,
            met_root: false,
            wrong: None,
        }
    }

    /// Compares a data block with what the index refers to next.
    pub(super) fn data(
        &mut self,
        window: &mut Window<'_>,
        block: BlockHandle,
        (first, last): (InternalKey<'_>, InternalKey<'_>),
    ) -> Result {
        self.keep(|index| index.meet_data(window, block, first, last))
    }

    /// Compares an index block with what the levels above it refer to next.
    pub(super) fn index(&mut self, window: &mut Window<'_>, block: BlockHandle) -> Result {
        self.keep(|index| index.meet_index(window, block))
    }

    /// Tells what is wrong with it, now that the walk is over; `last` is the last key of the table.
    pub(super) fn finish(
        &mut self,
        out: &mut Out<'_>,
        window: &mut Window<'_>,
        last: Option<&Key>,
    ) -> Result {
        self.keep(|index| index.check_end(window, last))?;
        match &self.wrong {
            Some(error) => out.refused(0, error),
            None => Ok(()),
        }
    }

    /// Data blocks that it refers to, and index blocks.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.data, self.index)
    }

    /// Keeps the first thing that is wrong; nothing is compared behind it.
    fn keep(&mut self, compare: impl FnOnce(&mut Self) -> Result<(), Broken>) -> Result {
        if self.wrong.is_some() {
            return Ok(());
        }
        match compare(self) {
            Ok(()) => Ok(()),
            Err(Broken::Stop(stop)) => Err(stop),
            Err(Broken::Decode(error)) => {
                self.wrong = Some(error);
                Ok(())
            }
        }
    }

    fn meet_data(
        &mut self,
        window: &mut Window<'_>,
        block: BlockHandle,
        first: InternalKey<'_>,
        last: InternalKey<'_>,
    ) -> Result<(), Broken> {
        let Some(cursor) = self.levels.last_mut() else { return Ok(()) };
        let Some((separator, handle)) = cursor.next(window)? else {
            return wrong(block.offset, "data block", "the index refers to no more data blocks");
        };
        if handle != block {
            let detail = format!("the index refers to {} bytes at {} here", handle.len, handle.offset);
            return wrong(block.offset, "data block", detail);
        }
        if self.before.as_ref().is_some_and(|(user, tag)| first <= InternalKey::new(user, *tag)) {
            return wrong(block.offset, "key order", "the first key is not after the separator before it");
        }
        if last > separator {
            return wrong(block.offset, "key order", "the last key is after the separator of its block");
        }
        self.before = Some((separator.user.to_vec(), separator.tag));
        self.data += 1;
        cursor.pass()
    }

    fn meet_index(&mut self, window: &mut Window<'_>, block: BlockHandle) -> Result<(), Broken> {
        if self.met_root {
            return wrong(block.offset, "index block", "stands behind the root, and nothing refers to it");
        }
        self.met_root = block == self.root;
        if self.met_root {
            return Ok(());
        }
        let Some((_, above)) = self.levels.split_last_mut() else { return Ok(()) };
        for cursor in above {
            if cursor.next(window)?.is_some_and(|(_, handle)| handle == block) {
                self.index += 1;
                return cursor.pass();
            }
        }
        wrong(block.offset, "index block", "nothing refers to it next")
    }

    fn check_end(&mut self, window: &mut Window<'_>, last: Option<&Key>) -> Result<(), Broken> {
        for cursor in &mut self.levels {
            if let Some((_, handle)) = cursor.next(window)? {
                let detail =
                    format!("the index refers to {} bytes here, which are no block of its", handle.len);
                return wrong(handle.offset, "block handle", detail);
            }
        }
        if !self.met_root {
            return wrong(
                self.root.offset,
                "root index",
                "the footer refers to another place than it stands at",
            );
        }
        let ends = |(user, tag): &Key| last.is_some_and(|(last, _)| last == user) && tag.to_u64() == 0;
        if !self.before.as_ref().is_some_and(ends) {
            let detail = "the last one is not the last user key with tag 0";
            return wrong(self.root.offset, "separator", detail);
        }
        Ok(())
    }
}

fn wrong<T>(offset: u64, what: &'static str, detail: impl Into<String>) -> Result<T, Broken> {
    Err(DecodeError::corrupt(offset, what, detail).into())
}

/// What the blocks of one level of the index refer to, one after the other.
struct Cursor {
    file_id: FileId,
    blocks_end: u64,
    /// The root, until it has been read.
    root: Option<BlockHandle>,
    /// Levels of index blocks down to the references.
    levels: usize,
    /// Where the block ends that was read last, on each level: none is read twice, nor a part of one.
    ends: Vec<u64>,
    /// From the root to where the next reference stands; empty behind the last.
    way: Vec<Open>,
}

/// An index block of which an entry is next.
struct Open {
    offset: u64,
    entries: BlockIter,
}

impl Open {
    fn handle(&self) -> Result<BlockHandle, Broken> {
        BlockHandle::decode(self.entries.value()).map_err(|error| self.broken(error))
    }

    fn broken(&self, error: DecodeError) -> Broken {
        DecodeError { offset: self.offset, ..error }.into()
    }
}

impl Cursor {
    /// The next reference and its separator.
    fn next(&mut self, window: &mut Window<'_>) -> Result<Option<(InternalKey<'_>, BlockHandle)>, Broken> {
        if let Some(root) = self.root.take() {
            self.enter(window, root)?;
        }
        while (1..self.levels).contains(&self.way.len()) {
            let handle = self.way[self.way.len() - 1].handle()?;
            self.enter(window, handle)?;
        }
        let Some(open) = self.way.last() else { return Ok(None) };
        let handle = open.handle()?;
        Ok(open.entries.key().map(|separator| (separator, handle)))
    }

    /// Goes on behind the next reference.
    fn pass(&mut self) -> Result<(), Broken> {
        while let Some(mut open) = self.way.pop() {
            let separator = open.entries.key().map(|key| (key.user.to_vec(), key.tag));
            if let Err(error) = open.entries.next() {
                return Err(open.broken(error));
            }
            if open.entries.is_valid() {
                self.way.push(open);
                return Ok(());
            }
            let above = self.way.last().and_then(|above| above.entries.key());
            let last = separator.as_ref().map(|(user, tag)| InternalKey::new(user, *tag));
            if above.is_some_and(|above| Some(above) != last) {
                let detail = "the one above it is not the last one of this block";
                return wrong(open.offset, "separator", detail);
            }
        }
        Ok(())
    }

    fn enter(&mut self, window: &mut Window<'_>, handle: BlockHandle) -> Result<(), Broken> {
        let end = &mut self.ends[self.way.len()];
        let offset = handle.offset;
        let in_block = |error: DecodeError| DecodeError { offset, ..error };
        handle.check(self.blocks_end).map_err(in_block)?;
        if offset < *end {
            return wrong(offset, "index block", "does not stand behind the one before it on its level");
        }
        *end = offset + handle.len;
        let sealed = window.apart(offset, handle.len).map_err(Broken::Stop)?;
        let payload = block::open(&self.file_id, offset, sealed, BlockKind::Index).map_err(in_block)?;
        let mut entries = BlockIter::new(payload, BlockValues::Index).map_err(in_block)?;
        entries.seek_first().map_err(in_block)?;
        self.way.push(Open { offset, entries });
        Ok(())
    }
}
