//! Shared bytes aligned to a cache line.

#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, DerefMut};

const LINE_BYTES: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

/// Bytes aligned to 64. Clones share them; a write to shared bytes copies them first.
#[derive(Clone)]
pub struct AlignedBytes {
    lines: Arc<[Line]>,
    /// At most the bytes of all lines; unsafe code relies on this.
    len: usize,
}

impl AlignedBytes {
    /// Returns `len` zero bytes. The memory is allocated at once, so verify a length from a file first.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let line = Line([0; LINE_BYTES]);
        Self { lines: core::iter::repeat_n(line, len.div_ceil(LINE_BYTES)).collect(), len }
    }

    /// Copies these bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut out = Self::zeroed(bytes.len());
        out.copy_from_slice(bytes);
        out
    }

    /// Memory in bytes, shared by clones.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // The counters of the `Arc` take another line.
        size_of_val(&*self.lines) + LINE_BYTES
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the lines are bytes without padding, at least `len` of them.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        let lines = Arc::make_mut(&mut self.lines);
        // SAFETY: as above, and any bytes are valid lines.
        unsafe { core::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn bytes_start_on_a_cache_line_wherever_they_are_moved() {
        let kept: Vec<AlignedBytes> =
            (0..300).map(|len| AlignedBytes::copy_of(&vec![len as u8; len])).collect();
        for (len, bytes) in kept.iter().cloned().chain(kept.iter().cloned()).enumerate() {
            assert_eq!(bytes.as_ptr() as usize % LINE_BYTES, 0);
            assert_eq!(&bytes[..], &vec![(len % 300) as u8; len % 300][..]);
        }
    }

    #[test]
    fn clones_share_their_bytes_until_one_is_written_to() {
        let mut one = AlignedBytes::copy_of(&[7; 100]);
        let other = one.clone();
        assert_eq!(one.as_ptr(), other.as_ptr());
        one[3] = 8;
        assert_eq!((one[3], other[3]), (8, 7));
        assert_ne!(one.as_ptr(), other.as_ptr());
    }
}
