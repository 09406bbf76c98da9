//! Reads what an intact block of a table holds, adds it to the sums, and compares it with the index.

use super::block::{self, Broken, Found, Opened};
use super::out::{Out, Result};
use super::table::Walk;
use super::text::short;
use super::words::counted;
use crate::block::{BlockHandle, BlockKind};
use crate::codec::DecodeError;
use crate::key::{InternalKey, Tag};
use crate::table::Properties;

impl Walk<'_, '_> {
    /// Adds a block to the sums; gives what it is in a line, and what is wrong with it.
    pub(super) fn scan(
        &mut self,
        out: &mut Out<'_>,
        block: &Opened,
    ) -> Result<(String, Option<DecodeError>)> {
        self.sums.block(block);
        if let (Some(chunks), true) = (&mut self.chunks, block.kind != BlockKind::ValueChunk) {
            chunks.pass(block.handle());
        }
        match block.kind {
            BlockKind::Data => self.scan_data(out, block),
            BlockKind::Index => {
                if let Some(index) = &mut self.index {
                    index.index(self.window, block.handle())?;
                }
                self.scan_index(block)
            }
            BlockKind::Padding if block.payload.iter().any(|&byte| byte != 0) => {
                Ok((String::new(), Some(DecodeError::corrupt(0, "padding", "is not zero"))))
            }
            BlockKind::Properties => match Properties::decode(&block.payload) {
                Ok(_) => Ok((block.sizes(), None)),
                Err(error) => Ok((block.sizes(), Some(error))),
            },
            BlockKind::Padding | BlockKind::ValueChunk => Ok((block.sizes(), None)),
        }
    }

    fn scan_data(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<(String, Option<DecodeError>)> {
        let wanted = out.view.entries;
        let (mut entries, mut first, mut wrong) = (0, None, None);
        let walked = block::walk_entries(block.kind, &block.payload, &mut |found: &Found<'_>| {
            first.get_or_insert_with(|| (found.key.user.to_vec(), found.key.tag));
            entries += 1;
            if let Some(wanted) = wanted {
                out.entry(block::entry(block.offset, found, wanted))?;
            }
            if let (Some(value), Some(chunks), None) = (found.chunks, &mut self.chunks, &wrong) {
                let start = found.raw.value.start as u64;
                wrong = chunks.follow(self.window, value, block.offset)?.map(|error| error.at(start));
            }
            self.sums.entry(found);
            Ok(())
        });
        let wrong = self.sums.take_disorder().or(wrong);
        let whole = walked.is_ok() && wrong.is_none();
        let no_key = (Vec::new(), Tag::newest_at(0));
        let (first, last) = (first.as_ref().unwrap_or(&no_key), self.sums.last.as_ref().unwrap_or(&no_key));
        if let (Some(index), true) = (&mut self.index, whole) {
            let keys = [first, last].map(|(user, tag)| InternalKey::new(user, *tag));
            index.data(self.window, block.handle(), keys.into())?;
        }
        let note = format!(
            "{}, {} to {}, {}",
            counted(entries, "entry", "entries"),
            short(&first.0),
            short(&last.0),
            block.sizes()
        );
        match walked {
            Err(Broken::Stop(stop)) => Err(stop),
            Err(Broken::Decode(error)) => Ok((note, Some(error))),
            Ok(()) => Ok((note, wrong)),
        }
    }

    fn scan_index(&mut self, block: &Opened) -> Result<(String, Option<DecodeError>)> {
        let mut handles: Vec<BlockHandle> = Vec::new();
        let (end, mut count) = (self.ends.blocks_end, 0);
        let mut wrong = None;
        let walked = block::walk_entries(block.kind, &block.payload, &mut |found| {
            let Ok(handle) = BlockHandle::decode(found.value) else { return Ok(()) };
            count += 1;
            if let Err(error) = handle.check(end) {
                wrong.get_or_insert(error.at(found.raw.value.start as u64));
            }
            handles.truncate(1);
            handles.push(handle);
            Ok(())
        });
        let from_to = match handles[..] {
            [] => String::new(),
            [only] => format!(", to the block at {}", only.offset),
            [first, .., last] => format!(", to the blocks at {} to {}", first.offset, last.offset),
        };
        let note = format!("{}{from_to}, {}", counted(count, "separator", "separators"), block.sizes());
        match walked {
            Err(Broken::Stop(stop)) => Err(stop),
            Err(Broken::Decode(error)) => Ok((note, Some(error))),
            Ok(()) => Ok((note, wrong)),
        }
    }
}
