//! Draws choices from the bytes of a fuzzer, front to back. At the end every choice is 0.

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

    pub(super) fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// A number below `n <= 256`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (found, left) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = left;
        found
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
}
