//! Bytes in memory that start on a cache line, so that a line of a blocked filter is one line of the cache.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// The alignment, and the length of a cache line on nearly every machine.
const ALIGN: usize = 64;

/// A fixed number of bytes whose first one stands at an address divisible by 64.
///
/// It costs up to 64 bytes more than its length. Fill it in place ([`AlignedBytes::zeroed`] and `&mut bytes[..]`,
/// as by a read from a file) or copy ([`AlignedBytes::copy_of`]).
pub struct AlignedBytes {
    // Ends where the bytes end. Never grown after construction: the start depends on where the vector lies.
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBytes {
    /// `len` zero bytes, which the caller has checked against what it expects: they are allocated at once.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut bytes = vec![0; len.saturating_add(ALIGN)];
        let start = bytes.as_ptr().align_offset(ALIGN);
        // The language allows align_offset to give up; then the bytes are right though not aligned.
        let start = if start < ALIGN { start } else { 0 };
        bytes.truncate(start.saturating_add(len));
        Self { bytes, start }
    }

    /// A copy of these bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut out = Self::zeroed(bytes.len());
        out.copy_from_slice(bytes);
        out
    }

    /// What it occupies in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

impl AsRef<[u8]> for AlignedBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBytes").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_start_on_a_cache_line_and_stay_there_when_moved_or_cloned() {
        let kept: Vec<AlignedBytes> =
            (0..300).map(|len| AlignedBytes::copy_of(&vec![len as u8; len])).collect();
        for (len, bytes) in kept.iter().cloned().chain(kept.iter().cloned()).enumerate() {
            assert_eq!(bytes.as_ptr() as usize % ALIGN, 0);
            assert_eq!(&bytes[..], &vec![(len % 300) as u8; len % 300][..]);
        }
    }
}
