//! The drop rules: which entries of a merge a reader can still see.
//!
//! Snapshots cut the sequence numbers into stripes: stripe `i` holds the numbers that are seen by snapshot
//! `i` and not by snapshot `i - 1`; the last stripe is seen by readers of the present only. Walking the
//! entries of a key from new to old:
//!
//! 1. An entry in the same stripe as a newer entry of its key is visible to no reader: dropped.
//! 2. A tombstone that every snapshot sees, and below which there is nothing older (`base`), hides nothing:
//!    dropped. Older entries of its key in this merge are in its stripe and fall under rule 1.
//! 3. A put that every snapshot sees, with nothing older below, is the only entry of its key. It is kept with
//!    sequence number 0, which is shorter on disk.

use crate::key::{EntryKind, InternalKey, SeqNo, Tag};

/// Whether an entry is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Drop,
    Keep(Tag),
}

/// Decides entry by entry, in the order of internal keys.
#[derive(Debug)]
pub(crate) struct Retain {
    /// Sequence numbers of the live snapshots, ascending.
    snapshots: Vec<SeqNo>,
    user_key: Vec<u8>,
    /// Stripe of the newest entry of `user_key` so far; `None` before the first entry of all.
    stripe: Option<usize>,
}

impl Retain {
    pub(crate) fn new(mut snapshots: Vec<SeqNo>) -> Self {
        snapshots.sort_unstable();
        Self { snapshots, user_key: Vec::new(), stripe: None }
    }

    /// The fate of the next entry. `base` returns whether a key has no older entries outside this merge. It
    /// is called only if the answer matters, with ascending user keys.
    pub(crate) fn decide(&mut self, key: InternalKey<'_>, base: impl FnOnce(&[u8]) -> bool) -> Fate {
        let stripe = self.snapshots.partition_point(|&snapshot| snapshot < key.tag.seqno());
        let same_key = self.stripe.is_some() && self.user_key == key.user;
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
            EntryKind::Delete => Fate::Drop,
            EntryKind::Put => Fate::Keep(Tag::new(0, EntryKind::Put)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind::{Delete, Put};

    /// Runs entries of one key "k", newest first, through the rules; gives what is kept.
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
            // No snapshot: the newest survives; at the base a tombstone goes and a put loses its number.
            (&[], false, &[(9, Put), (5, Put), (3, Delete)], &[(9, Put)]),
            (&[], false, &[(9, Delete), (5, Put)], &[(9, Delete)]),
            (&[], true, &[(9, Delete), (5, Put)], &[]),
            (&[], true, &[(9, Put), (5, Delete)], &[(0, Put)]),
            // A snapshot at 6 sees the entry at 5, one at 5 too, one at 4 does not.
            (&[6], false, &[(9, Put), (5, Put), (3, Put)], &[(9, Put), (5, Put)]),
            (&[5], false, &[(9, Put), (5, Put), (3, Put)], &[(9, Put), (5, Put)]),
            (&[4], false, &[(9, Put), (5, Put), (3, Put)], &[(9, Put), (3, Put)]),
            // At the base, a tombstone newer than a snapshot must go on hiding what the snapshot sees.
            (&[6], true, &[(9, Delete), (5, Put)], &[(9, Delete), (0, Put)]),
            (&[6], true, &[(9, Put), (5, Delete), (3, Put)], &[(9, Put)]),
            // A put newer than a snapshot keeps its number: the snapshot must not see it.
            (&[6], true, &[(9, Put)], &[(9, Put)]),
            // A snapshot above everything does not matter.
            (&[50], true, &[(9, Delete), (5, Put)], &[]),
            (&[50], true, &[(9, Put), (5, Put)], &[(0, Put)]),
        ];
        for (snapshots, base, entries, expected) in rows {
            assert_eq!(&kept(snapshots, *base, entries), expected, "{snapshots:?} {base} {entries:?}");
        }
    }

    #[test]
    fn keys_do_not_shadow_each_other() {
        let mut retain = Retain::new(Vec::new());
        for user in [&b""[..], b"a", b"ab", b"b"] {
            let key = InternalKey::new(user, Tag::new(3, Put));
            assert_eq!(retain.decide(key, |_| false), Fate::Keep(key.tag));
        }
    }
}
