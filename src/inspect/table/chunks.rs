//! Follows the chunks of long values during the walk.
//!
//! A value's chunks are contiguous and precede the data block that refers to them, in key order. Each
//! reference takes the first remaining chunks. A damaged block outside the index may be a chunk, and is
//! reported with its value's key.

use std::collections::VecDeque;

use crate::block::{BlockHandle, ChunkRef};
use crate::codec::DecodeError;
use crate::inspect::output::{Fault, Keys};

#[derive(Default)]
pub(super) struct Chunks {
    met: VecDeque<Met>,
    /// A lower bound of the start of the next value's chunks.
    next: u64,
    passed: Vec<Met>,
}

struct Met {
    offset: u64,
    end: u64,
    found: Result<u64, Fault>,
}

impl Chunks {
    pub(super) fn meet(&mut self, block: BlockHandle, payload_len: u64) {
        let end = block.offset + block.len;
        self.met.push_back(Met { offset: block.offset, end, found: Ok(payload_len) });
    }

    pub(super) fn meet_damaged(&mut self, offset: u64, end: u64, fault: Fault) {
        self.met.push_back(Met { offset, end, found: Err(fault) });
    }

    /// Takes the chunks of `user`'s value for the data block at `block`. Adds errors to `wrong`.
    pub(super) fn follow(
        &mut self,
        value: ChunkRef,
        (user, block): (&[u8], u64),
        wrong: &mut Vec<(Fault, Keys)>,
    ) {
        let keys = || (user.to_vec(), user.to_vec());
        let corrupt =
            |at, what, detail: String| (Fault::from(DecodeError::corrupt(at, what, detail)), keys());
        if let Err(error) = value.check(block) {
            return wrong.push((DecodeError { offset: block, ..error }.into(), keys()));
        }
        if value.offset < self.next {
            return wrong.push(corrupt(block, "chunked value", "refers to chunks of another value".into()));
        }
        while let Some(met) = self.take_if(|met| met.offset < value.offset) {
            self.passed.push(met);
        }
        let mut at = value.offset;
        for index in 0..value.count {
            let Some(met) = self.take_if(|met| met.offset == at) else {
                wrong.push(corrupt(block, "chunked value", format!("no chunk block was found at {at}")));
                break;
            };
            match met.found {
                Ok(found) if found == value.chunk_len(index) => {}
                Ok(found) => {
                    let expected = value.chunk_len(index);
                    let detail = format!("chunk {index} has {found} bytes, expected {expected}");
                    wrong.push(corrupt(at, "value chunk length", detail));
                }
                Err(fault) => wrong.push((fault, keys())),
            }
            at = met.end;
        }
        self.next = at;
    }

    fn take_if(&mut self, is_next: impl FnOnce(&Met) -> bool) -> Option<Met> {
        if self.met.front().is_some_and(is_next) { self.met.pop_front() } else { None }
    }

    /// Returns the damaged blocks without a reference, and the offsets of the intact ones.
    pub(super) fn take_rest(&mut self) -> (Vec<Fault>, Vec<u64>) {
        let (mut damaged, mut intact) = (Vec::new(), Vec::new());
        for met in self.passed.drain(..).chain(self.met.drain(..)) {
            match met.found {
                Ok(_) => intact.push(met.offset),
                Err(fault) => damaged.push(fault),
            }
        }
        (damaged, intact)
    }
}
