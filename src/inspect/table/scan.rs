//! Adds an intact block to the sums, and compares it with the index.

use super::block::{self, Opened};
use super::index::Reference;
use super::walk::Walk;
use crate::block::{BlockHandle, BlockKind};
use crate::codec::DecodeError;
use crate::inspect::output::{Event, Fault, Keys, Out, Result, counted, short};
use crate::key::{InternalKey, Tag};
use crate::table::Properties;

#[derive(Default)]
pub(super) struct Scanned {
    pub(super) note: String,
    /// The offset in the error is relative to the payload. The keys are the affected ones, if known.
    pub(super) broken: Option<(DecodeError, Option<Keys>)>,
    pub(in crate::inspect) wrong: Vec<(Fault, Keys)>,
}

impl Walk<'_, '_> {
    pub(super) fn scan(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<Scanned> {
        self.sums.block(block);
        let broken = match block.kind {
            BlockKind::Data => return self.scan_data(out, block),
            BlockKind::Index => return self.scan_index(block),
            BlockKind::ValueChunk => {
                if let Some(chunks) = &mut self.chunks {
                    chunks.meet(block.handle(), block.payload.len() as u64);
                }
                None
            }
            BlockKind::Padding => {
                let stray = block.payload.iter().any(|&byte| byte != 0);
                stray.then(|| DecodeError::corrupt(0, "padding", "is not zero"))
            }
            BlockKind::Properties => Properties::decode(&block.payload).err(),
            BlockKind::Spans => return self.scan_spans(out, block),
        };
        Ok(Scanned { note: block.sizes(), broken: broken.map(|error| (error, None)), ..Scanned::default() })
    }

    fn scan_data(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<Scanned> {
        let reference = self.meet_data(out, block.offset)?;
        let wanted = out.view.entries;
        let (mut entries, mut first, mut wrong) = (0, None, Vec::new());
        let walked = block::walk(block.kind, &block.payload, &mut |found| {
            first.get_or_insert_with(|| (found.key.user.to_vec(), found.key.tag));
            entries += 1;
            if let Some(wanted) = wanted {
                out.event(&Event::Entry(block::entry(block.offset, found, wanted)))?;
            }
            if let (Some(value), Some(chunks)) = (found.chunks, &mut self.chunks) {
                chunks.follow(value, (found.key.user, block.offset), &mut wrong);
            }
            if self.sums.entry(found) {
                self.held.iter_mut().for_each(|held| held.probe(found.key.user, block.offset));
            }
            Ok(())
        })?;
        let disorder = self.sums.take_disorder();
        let no_key = (Vec::new(), Tag::newest_at(0));
        let (first, last) = (first.as_ref().unwrap_or(&no_key), self.sums.last.as_ref().unwrap_or(&no_key));
        let (count, from, to) = (counted(entries, "entry", "entries"), short(&first.0), short(&last.0));
        let note = format!("{count}, {from} to {to}, {}", block.sizes());
        let [first, last] = [first, last].map(|(user, tag)| InternalKey::new(user, *tag));
        // The index is more precise, because separators lie between the blocks.
        let disorder = disorder.filter(|_| self.index.is_none());
        let mut broken = disorder.or(walked.err());
        let mut keys = None;
        match reference {
            Some(reference) => {
                broken = broken.or_else(|| wrong_reference(&reference, block.handle(), first, last));
                keys = Some(reference.keys);
                self.pass(reference.separator);
            }
            None => self.note_unreferenced(block),
        }
        Ok(Scanned { note, broken: broken.map(|error| (error, keys)), wrong })
    }

    fn scan_spans(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<Scanned> {
        let (payload, wanted, before) = (&block.payload, out.view.entries, self.sums.spans.totals().count);
        let mut reader = std::mem::take(&mut self.sums.spans);
        let read = reader.read::<Fault>(payload, &mut |span| {
            let (start, end) = (&payload[span.start.clone()], &payload[span.end.clone()]);
            self.sums.span(start);
            wanted.map_or(Ok(()), |_| block::range_deletes(out, block.offset, (start, end), span.seqnos))?;
            Ok(())
        });
        self.sums.spans = reader;
        let count = self.sums.spans.totals().count - before;
        let note = format!("{}, {}", counted(count, "span", "spans"), block.sizes());
        let broken = match read {
            Err(Fault::Stop(stop)) => return Err(stop),
            Err(Fault::Decode(error)) => Some((error, None)),
            Ok(()) => None,
        };
        let named = self.ends.properties.as_ref().ok().and_then(|own| own.spans.as_ref());
        if !named.is_some_and(|spans| spans.blocks.contains(&block.handle())) {
            self.note_unreferenced(block);
        }
        Ok(Scanned { note, broken, ..Scanned::default() })
    }

    fn scan_index(&mut self, block: &Opened) -> Result<Scanned> {
        let mut handles: Vec<BlockHandle> = Vec::new();
        let (end, mut count, mut wrong) = (self.ends.blocks_end, 0, None);
        let walked = block::walk(block.kind, &block.payload, &mut |found| {
            let Some(handle) = found.handle else { return Ok(()) };
            count += 1;
            if let Err(error) = handle.check(end) {
                wrong.get_or_insert(error.at(found.raw.value.start as u64));
            }
            handles.truncate(1);
            handles.push(handle);
            Ok(())
        })?;
        let from_to = match handles[..] {
            [] => String::new(),
            [only] => format!(", to the block at {}", only.offset),
            [first, .., last] => format!(", to the blocks at {} to {}", first.offset, last.offset),
        };
        let note = format!("{}{from_to}, {}", counted(count, "separator", "separators"), block.sizes());
        let mut scanned = Scanned { note, ..Scanned::default() };
        let Some(index) = &mut self.index else {
            scanned.broken = walked.err().or(wrong).map(|error| (error, None));
            return Ok(scanned);
        };
        match (index.take_lost(block.offset), walked) {
            (lost, Err(error)) => scanned.broken = Some((error, lost.and_then(|(_, keys)| keys))),
            (Some((Fault::Decode(error), keys)), Ok(())) => {
                let error = DecodeError { offset: 0, ..error };
                scanned.broken = Some((error, keys));
            }
            (_, Ok(())) if index.meet(block.handle()) => {}
            (_, Ok(())) => self.note_unreferenced(block),
        }
        Ok(scanned)
    }
}

fn wrong_reference(
    reference: &Reference,
    block: BlockHandle,
    first: InternalKey<'_>,
    last: InternalKey<'_>,
) -> Option<DecodeError> {
    let wrong = |what, detail: String| Some(DecodeError::corrupt(0, what, detail));
    if reference.handle.len != block.len {
        let detail = format!("it has {} bytes, the index refers to {}", block.len, reference.handle.len);
        return wrong("data block", detail);
    }
    let (user, tag) = &reference.separator;
    if last > InternalKey::new(user, *tag) {
        return wrong("key order", "the last key is after the separator of its block".into());
    }
    let before = reference.before.as_ref();
    if before.is_some_and(|(user, tag)| first <= InternalKey::new(user, *tag)) {
        return wrong("key order", "the first key is not after the separator before it".into());
    }
    None
}
