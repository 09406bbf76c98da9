//! Reading ahead of a walk along the data blocks of a table.
//!
//! A scan that has read blocks one after the other, up or down, reads as many bytes at once as it has read so far: at
//! least [`AHEAD_BYTES_MIN`], after one block, and at most the limit of its kind. So a short scan reads only the
//! blocks it needs, and a long one at most twice that. Blocks that are found in the cache interrupt it.
//!
//! Bytes that were read ahead are kept in a buffer until the scan reaches them. Then each block is checked, and
//! cached or not, like a block that was read alone; a block that fails its check is read again.
//!
//! The buffer is leased, and is at most a part of the memory budget. Without a lease, and after a read ahead that
//! failed, blocks are read one by one: an error beyond the block that the walk needs is not its error.

use std::ops::Range;

use crate::block::BlockHandle;
use crate::error::Result;
use crate::memory::{Lease, LeaseKind};

use super::file::TableFile;

/// The least that is read ahead.
const AHEAD_BYTES_MIN: u64 = 16 << 10;

/// A buffer takes at most one part in so many of the memory budget.
const BUDGET_PARTS: usize = 128;

/// The bytes that a walk has read ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    bytes_max: u64,
    /// Where the data blocks end.
    data_end: u64,
    /// Bytes of the file, from `start` on.
    bytes: Vec<u8>,
    start: u64,
    /// The block that was read last, and how many bytes were read up to its end without a gap.
    last: Range<u64>,
    passed: u64,
    /// For this many bytes.
    lease: Option<(u64, Lease)>,
}

impl ReadAhead {
    /// Reads at most `bytes_max` at once.
    pub(super) fn new(bytes_max: u64, data_end: u64) -> Self {
        Self { bytes_max, data_end, bytes: Vec::new(), start: 0, last: 0..0, passed: 0, lease: None }
    }

    /// How many bytes were read without a gap.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// The sealed bytes of a block, which lies in the file.
    pub(super) fn read(&mut self, file: &TableFile, handle: BlockHandle) -> Result<Vec<u8>> {
        let block = handle.offset..handle.offset + handle.len;
        let down = block.end == self.last.start;
        if !down && block.start != self.last.end {
            self.passed = 0;
        }
        let passed = self.passed;
        self.passed += handle.len;
        self.last = block.clone();
        if let Some(found) = self.found(&block) {
            return Ok(found);
        }
        let ahead = passed.min(self.bytes_max).min((file.ctx.memory.budget() / BUDGET_PARTS) as u64);
        let ahead = if ahead >= AHEAD_BYTES_MIN.max(handle.len + 1) { self.lease(file, ahead) } else { 0 };
        if ahead > handle.len {
            let window = match down {
                true => block.end.saturating_sub(ahead)..block.end,
                false => block.start..(block.start + ahead).min(self.data_end).max(block.end),
            };
            self.fill(file, window);
        }
        self.found(&block).map_or_else(|| file.read(handle.offset, handle.len), Ok)
    }

    /// A copy of these bytes, if they were read ahead.
    fn found(&self, block: &Range<u64>) -> Option<Vec<u8>> {
        let from = block.start.checked_sub(self.start)? as usize;
        let bytes = self.bytes.get(from..from + (block.end - block.start) as usize)?;
        Some(bytes.to_vec())
    }

    /// Lets the buffer and its memory go: the walk has come to an end.
    pub(super) fn release(&mut self) {
        (self.lease, self.bytes) = (None, Vec::new());
    }

    /// Leases memory for this many bytes, or keeps its lease. Returns the number of bytes with memory.
    fn lease(&mut self, file: &TableFile, len: u64) -> u64 {
        let leased = self.lease.as_ref().map_or(0, |(leased, _)| *leased);
        if leased >= len {
            return len;
        }
        let Some(lease) = file.ctx.memory.try_lease_if_plenty(LeaseKind::Tables, len) else { return leased };
        (self.lease, self.bytes) = (Some((len, lease)), Vec::new());
        len
    }

    /// Reads these bytes of the file.
    fn fill(&mut self, file: &TableFile, window: Range<u64>) {
        let len = (window.end - window.start) as usize;
        if len > self.bytes.capacity() {
            // The old memory goes first. Pages that are new to the process are zeros already.
            self.bytes = Vec::new();
            self.bytes = vec![0; len];
        }
        self.bytes.resize(len, 0);
        self.start = window.start;
        if file.read_into(window.start, &mut self.bytes).is_err() {
            self.bytes.clear();
            self.passed = 0;
        }
    }
}
