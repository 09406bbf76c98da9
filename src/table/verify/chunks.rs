//! Values in chunks: blocks of the walk that follow each other, each as long as the value needs it.

use bytes::Bytes;

use crate::block::{BlockKind, ChunkRef};
use crate::error::{Error, Result};

use super::Verifier;

/// Times the length of the file that may be read in vain where the walk met damage.
const WASTED_TIMES_MAX: u64 = 4;

impl Verifier<'_> {
    /// Looks at the chunks of the value of `user`, to which the data block at `at` refers. They lie behind
    /// those of the value before it. Behind a damaged one it goes on only where the walk did.
    pub(super) fn chunks(&mut self, chunks: ChunkRef, user: &[u8], at: u64) {
        let user = Bytes::copy_from_slice(user);
        let report = |verifier: &mut Self, error| verifier.report_for(error, (user.clone(), user.clone()));
        if chunks.offset < self.next_chunk {
            let error = self.file.corrupt(at, "chunked value", "refers to chunks of another value");
            return report(self, error);
        }
        let mut position = chunks.offset;
        for index in 0..chunks.count {
            let expected = chunks.chunk_len(index);
            let (next, wrong) = match self.chunk(position) {
                Some(Ok((next, found))) if found == expected => (Some(next), None),
                Some(Ok((next, found))) => {
                    let detail = format!("chunk {index} has {found} bytes, expected {expected}");
                    (Some(next), Some(self.file.corrupt(position, "value chunk length", detail)))
                }
                Some(Err(error)) => {
                    let error = self.damaged.remove(&position).unwrap_or(error);
                    (self.chunk_behind(position), Some(error))
                }
                None => {
                    let detail = format!("no chunk block was found at {position}");
                    (None, Some(self.file.corrupt(at, "chunked value", detail)))
                }
            };
            if let Some(error) = wrong {
                report(self, error);
            }
            self.reached.insert(position);
            let Some(next) = next else { break };
            position = next;
        }
        self.next_chunk = position;
    }

    /// The end of the chunk block at `position` and the length of its payload, if there is one.
    fn chunk(&mut self, position: u64) -> Option<Result<(u64, u64)>> {
        match self.blocks.get(&position) {
            Some(walked) if walked.kind == BlockKind::ValueChunk => {
                Some(Ok((position + walked.len, walked.raw_len)))
            }
            None if self.hole(position).is_some() => Some(self.read_chunk(position)),
            _ => None,
        }
    }

    /// A chunk block where the walk met damage.
    fn read_chunk(&mut self, position: u64) -> Result<(u64, u64)> {
        let file = self.file;
        let handle = file.handle_at(position)?;
        if self.wasted_bytes / WASTED_TIMES_MAX > file.blocks_end {
            return Err(file.corrupt(position, "value chunk", "stands among too many damaged ones to look"));
        }
        let payload = file.read_block(handle, BlockKind::ValueChunk);
        let payload = payload.inspect_err(|_: &Error| self.wasted_bytes += handle.len)?;
        Ok((position + handle.len, payload.len() as u64))
    }

    /// Where the walk found a chunk block behind the damaged one at `position`.
    fn chunk_behind(&self, position: u64) -> Option<u64> {
        let next = self.hole(position).filter(|hole| hole.start == position)?.end;
        let follows = self.blocks.get(&next).is_some_and(|walked| walked.kind == BlockKind::ValueChunk);
        (follows || self.damaged.contains_key(&next)).then_some(next)
    }
}
