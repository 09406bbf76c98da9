//! Derives choices from a fuzzer's bytes. After the end, choices are 0 and slices are empty. Targets make important
//! choices first, so that mutations keep them.

use byteorder::{ByteOrder, LittleEndian};

#[derive(Debug, Clone)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let found = self.take(N);
        out[..found.len()].copy_from_slice(found);
        out
    }

    pub fn u8(&mut self) -> u8 {
        self.number::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        LittleEndian::read_u16(&self.number::<2>())
    }

    pub fn u32(&mut self) -> u32 {
        LittleEndian::read_u32(&self.number::<4>())
    }

    pub fn u64(&mut self) -> u64 {
        LittleEndian::read_u64(&self.number::<8>())
    }

    /// A number below `n <= 256`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Returns the next `len` bytes, or fewer at the end.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (found, left) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = left;
        found
    }

    /// Returns up to 255 bytes; the first byte is their number.
    pub fn short(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.take(len.into())
    }

    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.bytes)
    }
}
