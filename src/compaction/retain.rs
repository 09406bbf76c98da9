//! The drop rules: which entries of a merge no reader can see any more.
//!
//! Snapshots divide the sequence numbers into stripes. Stripe `i` holds the numbers that snapshot `i` sees
//! and snapshot `i - 1` does not; no snapshot sees the last stripe. The rules for the entries of a key, from
//! new to old:
//!
//! 1. An entry in the same stripe as a newer entry of its key is dropped: every reader that could see it sees
//!    the newer one.
//! 2. A tombstone that every snapshot sees is dropped if the key has no older entries outside this merge
//!    (`base`). Its older entries in this merge are in the same stripe, and rule 1 drops them.
//! 3. A put that every snapshot sees gets the sequence number 0 if the key has no older entries outside this
//!    merge. It is the oldest entry of its key that remains, and a 0 is shorter on disk.

use crate::key::{EntryKind, InternalKey, SeqNo, Tag, key_prefix};

/// Whether an entry is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Drop,
    Keep(Tag),
}

/// Applies the rules to one entry after the other, in the order of internal keys.
#[derive(Debug)]
pub(crate) struct Retain {
    /// Sequence numbers of the live snapshots, ascending.
    snapshots: Vec<SeqNo>,
    user_key: Vec<u8>,
    /// Stripe of the entry before, which has the key `user_key`; `None` before the first entry.
    stripe: Option<usize>,
}

impl Retain {
    pub(crate) fn new(mut snapshots: Vec<SeqNo>) -> Self {
        snapshots.sort_unstable();
        Self { snapshots, user_key: Vec::new(), stripe: None }
    }

    /// Whether the next entry is kept. `base` returns whether a key has no older entries outside this merge.
    /// It is called only if a rule needs it, with ascending user keys.
    #[inline]
    pub(super) fn decide(&mut self, key: InternalKey<'_>, base: impl FnOnce(&[u8]) -> bool) -> Fate {
        let stripe = self.snapshots.partition_point(|&snapshot| snapshot < key.tag.seqno());
        let same_key = self.stripe.is_some() && is_same(&self.user_key, key.user);
        if same_key && self.stripe == Some(stripe) {
            return Fate::Drop;
        }
        if !same_key {
            self.user_key.clear();
            self.user_key.extend_from_slice(key.user);
        }
        self.stripe = Some(stripe);
        if stripe > 0 || !base(key.user) {
            return Fate::Keep(key.tag);
        }
        match key.tag.kind() {
            EntryKind::Delete | EntryKind::RangeDelete => Fate::Drop,
            EntryKind::Put => Fate::Keep(Tag::new(0, EntryKind::Put)),
        }
    }
}

/// Whether two user keys are equal; most differ in their first bytes, which are compared at once.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    key_prefix(a) == key_prefix(b) && a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind::{Delete, Put};

    /// Applies the rules to entries of one key "k", newest first, and returns those that are kept.
    fn kept(snapshots: &[SeqNo], base: bool, entries: &[(SeqNo, EntryKind)]) -> Vec<(SeqNo, EntryKind)> {
        let mut retain = Retain::new(snapshots.to_vec());
        let fates = entries
            .iter()
            .map(|&(seqno, kind)| retain.decide(InternalKey::new(b"k", Tag::new(seqno, kind)), |_| base));
        let kept = fates.filter_map(|fate| match fate {
            Fate::Keep(tag) => Some((tag.seqno(), tag.kind())),
            Fate::Drop => None,
        });
        kept.collect()
    }

    #[test]
    fn the_drop_rules_as_a_table() {
        type Row<'a> = (&'a [SeqNo], bool, &'a [(SeqNo, EntryKind)], &'a [(SeqNo, EntryKind)]);
        let rows: &[Row] = &[
            // Without snapshots only the newest is kept; at the base a tombstone is dropped, and a put gets
            // the number 0.
            (&[], false, &[(9, Put), (5, Put), (3, Delete)], &[(9, Put)]),
            (&[], false, &[(9, Delete), (5, Put)], &[(9, Delete)]),
            (&[], true, &[(9, Delete), (5, Put)], &[]),
            (&[], true, &[(9, Put), (5, Delete)], &[(0, Put)]),
            // Snapshots at 6 and at 5 see the entry at 5, a snapshot at 4 does not.
            (&[6], false, &[(9, Put), (5, Put), (3, Put)], &[(9, Put), (5, Put)]),
            (&[5], false, &[(9, Put), (5, Put), (3, Put)], &[(9, Put), (5, Put)]),
            (&[4], false, &[(9, Put), (5, Put), (3, Put)], &[(9, Put), (3, Put)]),
            // At the base, a tombstone newer than a snapshot is kept, because it hides an entry that is kept
            // for the snapshot.
            (&[6], true, &[(9, Delete), (5, Put)], &[(9, Delete), (0, Put)]),
            (&[6], true, &[(9, Put), (5, Delete), (3, Put)], &[(9, Put)]),
            // A put newer than a snapshot keeps its number: the snapshot must not see it.
            (&[6], true, &[(9, Put)], &[(9, Put)]),
            // A snapshot that sees all entries has no effect.
            (&[50], true, &[(9, Delete), (5, Put)], &[]),
            (&[50], true, &[(9, Put), (5, Put)], &[(0, Put)]),
        ];
        for (snapshots, base, entries, expected) in rows {
            assert_eq!(&kept(snapshots, *base, entries), expected, "{snapshots:?} {base} {entries:?}");
        }
    }

    #[test]
    fn an_entry_is_never_dropped_for_an_entry_of_another_key() {
        let mut retain = Retain::new(Vec::new());
        for user in [&b""[..], b"a", b"ab", b"b"] {
            let key = InternalKey::new(user, Tag::new(3, Put));
            assert_eq!(retain.decide(key, |_| false), Fate::Keep(key.tag));
        }
    }
}
