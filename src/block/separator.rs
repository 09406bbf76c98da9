//! The keys of the index.
//!
//! A separator is an internal key at or after the last key of a block and before the first key of the next one. Its
//! user key is the shortest possible one, and the smallest of this length: a scan that starts between the last key and
//! the separator wastes a block read.
//!
//! If the two blocks have different user keys, its tag is 0, which sorts last. Otherwise it is the last internal key.
//! So a key can only be in the block of the first separator at or after it.

use crate::key::{EntryKind, InternalKey, Tag, common_prefix};

fn last_tag() -> Tag {
    Tag::new(0, EntryKind::Delete)
}

pub(crate) fn separator(last: InternalKey<'_>, next: InternalKey<'_>) -> (Vec<u8>, Tag) {
    if last.user == next.user {
        return (last.user.to_vec(), last.tag);
    }
    (shortest_between(last.user, next.user), last_tag())
}

/// Returns the last key itself: a longer range would seem to include keys after the table.
pub(crate) fn separator_of_last(last: InternalKey<'_>) -> (Vec<u8>, Tag) {
    (last.user.to_vec(), last_tag())
}

/// Returns the shortest `s` with `last <= s < next`, and the smallest of that length.
fn shortest_between(last: &[u8], next: &[u8]) -> Vec<u8> {
    let differs = common_prefix(last, next);
    for index in differs..last.len().saturating_sub(1) {
        let Some(byte) = last[index].checked_add(1) else { continue };
        // If `next` is longer, the incremented byte may equal its byte.
        let before_next = index > differs || byte < next[index] || next.len() > index + 1;
        if before_next {
            let mut found = last[..index].to_vec();
            found.push(byte);
            return found;
        }
    }
    last.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_shortest_and_between() {
        for (last, next, expected) in [
            (&b"apple"[..], &b"banana"[..], &b"b"[..]),
            (b"apple", b"b", b"aq"),
            (b"apple", b"zebra", b"b"),
            (b"a", b"b", b"a"),
            (b"", b"a", b""),
            (b"ab", b"abc", b"ab"),
            (b"abcdef", b"abce", b"abcdf"),
            (b"a\xff\xffx", b"b", b"a\xff\xffx"),
            (b"a\xff\x01x", b"b", b"a\xff\x02"),
            (b"a\xff\xff\x01x", b"b", b"a\xff\xff\x02"),
        ] {
            assert_eq!(shortest_between(last, next), expected, "{last:?} {next:?}");
        }
    }

    #[test]
    fn separators_of_all_short_pairs_are_minimal() {
        let bytes = [0u8, 1, 0xfe, 0xff];
        let mut keys = vec![vec![]];
        for len in 1..=3 {
            for code in 0..4usize.pow(len) {
                keys.push((0..len).map(|digit| bytes[code / 4usize.pow(digit) % 4]).collect::<Vec<u8>>());
            }
        }
        keys.sort();
        for (at, last) in keys.iter().enumerate() {
            for next in &keys[at + 1..] {
                let found = shortest_between(last, next);
                assert!(last <= &found && &found < next, "{last:?} {next:?} {found:?}");
                let shorter = keys.iter().any(|key| last <= key && key < next && key.len() < found.len());
                assert!(!shorter, "{last:?} {next:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_user_key_that_spans_blocks_is_separated_by_its_tag() {
        let key = |seqno| InternalKey::new(b"k", Tag::new(seqno, EntryKind::Put));
        assert_eq!(separator(key(5), key(4)), (b"k".to_vec(), key(5).tag));
        let (user, tag) = separator_of_last(key(5));
        assert!(InternalKey::new(&user, tag) > key(0));
    }
}
