//! The bytes of a fuzzer as a source of choices, read front to back.
//!
//! At their end every choice is 0 and every slice empty, so that all byte strings mean something. What a target
//! draws first stands first: a mutation changes one choice and leaves those before it as they were.

/// What is left of an input.
#[derive(Debug, Clone)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let found = self.take(N);
        out[..found.len()].copy_from_slice(found);
        out
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.number())
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.number())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.number())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.number())
    }

    /// A number below `n`, which is at most 256; 0 if `n` is.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    pub(super) fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// The next `len` bytes, or what there is.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (found, left) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = left;
        found
    }

    /// Bytes preceded by their number, up to 255.
    pub(super) fn short(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.take(len.into())
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
}
