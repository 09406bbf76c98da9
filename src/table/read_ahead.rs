//! Reads ahead of a walk over the data blocks of a table, up or down. A read is as long as the walk so far, from
//! [`AHEAD_BYTES_MIN`] up to a limit. A block found in the cache interrupts the walk.
//!
//! The buffer is leased. Without a lease, or after a failed read-ahead, blocks are read one by one: an error beyond the
//! needed block must not fail the scan.

use std::ops::Range;

use crate::block::BlockHandle;
use crate::error::Result;
use crate::memory::{Lease, LeaseKind};

use super::file::TableFile;

const AHEAD_BYTES_MIN: u64 = 16 << 10;

const BUDGET_PARTS: usize = 128;

#[derive(Debug)]
pub(super) struct ReadAhead {
    bytes_max: u64,
    data_end: u64,
    bytes: Vec<u8>,
    start: u64,
    /// The last block read.
    last: Range<u64>,
    passed: u64,
    lease: Option<(u64, Lease)>,
}

impl ReadAhead {
    pub(super) fn new(bytes_max: u64, data_end: u64) -> Self {
        Self { bytes_max, data_end, bytes: Vec::new(), start: 0, last: 0..0, passed: 0, lease: None }
    }

    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

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

    fn found(&self, block: &Range<u64>) -> Option<Vec<u8>> {
        let from = block.start.checked_sub(self.start)? as usize;
        let bytes = self.bytes.get(from..from + (block.end - block.start) as usize)?;
        Some(bytes.to_vec())
    }

    pub(super) fn release(&mut self) {
        (self.lease, self.bytes) = (None, Vec::new());
    }

    fn lease(&mut self, file: &TableFile, len: u64) -> u64 {
        let leased = self.lease.as_ref().map_or(0, |(leased, _)| *leased);
        if leased >= len {
            return len;
        }
        let Some(lease) = file.ctx.memory.try_lease_if_plenty(LeaseKind::Tables, len) else { return leased };
        (self.lease, self.bytes) = (Some((len, lease)), Vec::new());
        len
    }

    fn fill(&mut self, file: &TableFile, window: Range<u64>) {
        let len = (window.end - window.start) as usize;
        if len > self.bytes.capacity() {
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
