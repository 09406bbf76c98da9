//! Internal keys as strings of 4-bit digits, in key order. The trie branches by these digits.
//!
//! ```text
//! digits
//! 0 ..           the user key, padded with zeros to the length of the longest target
//! LENGTH_AT ..   the length of the user key
//! TAG_AT ..      the tag with all bits inverted, because larger tags come first
//! ```
//!
//! All strings have the same length. Two user keys differ in a digit or in their length; entries of one user key
//! differ in their tags.

use crate::key::{InternalKey, Tag};
use crate::limits::KEY_BYTES_MAX;

pub(super) const DIGIT_BITS: u32 = 4;

pub(super) const DIGITS: u32 = 1 << DIGIT_BITS;

const TARGET_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

const LENGTH_AT: u32 = 2 * TARGET_BYTES_MAX as u32;

const LENGTH_DIGITS: u32 = 5;

/// Entries with equal digits before this position have the same user key.
pub(super) const TAG_AT: u32 = LENGTH_AT + LENGTH_DIGITS;

pub(super) const END: u32 = TAG_AT + u64::BITS / DIGIT_BITS;

#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    key: InternalKey<'a>,
}

impl<'a> Target<'a> {
    #[inline]
    pub(super) fn new(user: &'a [u8], tag: Tag) -> Self {
        let user = user.get(..TARGET_BYTES_MAX).unwrap_or(user);
        Self { key: InternalKey::new(user, tag) }
    }

    #[inline]
    pub(super) fn user(&self) -> &'a [u8] {
        self.key.user
    }

    #[inline]
    pub(super) fn digit(&self, at: u32) -> u32 {
        match self.key.user.get(at as usize / 2) {
            Some(&byte) => u32::from(byte) >> (DIGIT_BITS * (!at & 1)) & (DIGITS - 1),
            None => self.digit_behind_key(at),
        }
    }

    #[inline(never)]
    fn digit_behind_key(&self, at: u32) -> u32 {
        let number = match at {
            ..LENGTH_AT => 0,
            LENGTH_AT..TAG_AT => self.key.user.len() as u64 >> (DIGIT_BITS * (TAG_AT - 1 - at)),
            _ => !self.key.tag.to_u64() >> (DIGIT_BITS * (END - 1 - at)),
        };
        number as u32 & (DIGITS - 1)
    }
}

/// The first position at which an entry and a target differ, and their digits, or [`END`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) at: u32,
    pub(super) entry: u32,
    pub(super) target: u32,
}

impl Difference {
    #[inline]
    pub(super) fn is_after(&self) -> bool {
        self.target > self.entry
    }

    #[inline]
    pub(super) fn of_words(first: u32, entry: u32, target: u32) -> Self {
        Self::of_numbers(first, u64::from(entry) << u32::BITS, u64::from(target) << u32::BITS)
    }

    pub(super) fn of_bytes(first: u32, entry: u8, target: u8) -> Self {
        Self::of_numbers(first, u64::from(entry) << (u64::BITS - 8), u64::from(target) << (u64::BITS - 8))
    }

    #[inline]
    pub(super) fn of_numbers(first: u32, entry: u64, target: u64) -> Self {
        let shift = (entry ^ target).leading_zeros() / DIGIT_BITS * DIGIT_BITS;
        let digit = |number: u64| (number << shift >> (u64::BITS - DIGIT_BITS)) as u32;
        Self { at: first + shift / DIGIT_BITS, entry: digit(entry), target: digit(target) }
    }

    pub(super) fn behind_keys(entry: (usize, u64), target: &Target<'_>) -> Self {
        let (len, tag) = entry;
        let (target_len, target_tag) = (target.key.user.len(), target.key.tag.to_u64());
        let align = |len: usize| (len as u64) << (u64::BITS - LENGTH_DIGITS * DIGIT_BITS);
        if len != target_len {
            Self::of_numbers(LENGTH_AT, align(len), align(target_len))
        } else if tag != target_tag {
            Self::of_numbers(TAG_AT, !tag, !target_tag)
        } else {
            Self { at: END, entry: 0, target: 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    #[test]
    fn digits_are_in_the_order_of_the_keys() {
        const { assert!(TARGET_BYTES_MAX < 1 << (LENGTH_DIGITS * DIGIT_BITS)) };
        let users: [&[u8]; 9] = [b"", &[0], &[0, 0], &[0, 0, 7], &[0, 1], b"a", b"a\0", b"ab", &[0xff; 3]];
        let tags =
            [(0, EntryKind::Delete), (1, EntryKind::Delete), (1, EntryKind::Put), (77 << 40, EntryKind::Put)];
        let keys = users.into_iter().flat_map(|user| tags.map(|(seqno, kind)| (user, Tag::new(seqno, kind))));
        let mut keys: Vec<_> = keys.map(|(user, tag)| InternalKey::new(user, tag)).collect();
        keys.sort();
        let digits = |key: &InternalKey<'_>| {
            let target = Target::new(key.user, key.tag);
            (0..10).chain(LENGTH_AT - 1..END).map(|at| target.digit(at)).collect::<Vec<_>>()
        };
        let strings: Vec<_> = keys.iter().map(digits).collect();
        assert!(strings.is_sorted() && strings.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
