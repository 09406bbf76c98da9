//! The drop rules: which entries of a merge are no longer visible to any reader.
//!
//! Snapshots divide the sequence numbers into stripes. Stripe `i` has the numbers that snapshot `i` sees and snapshot
//! `i - 1` does not see. The last stripe is not seen by any snapshot. The entries of a key are processed from new to
//! old:
//!
//! 1. An entry in the same stripe as a newer entry of its key, or as a newer range delete over it, is dropped.
//! 2. A tombstone that every snapshot sees is dropped if the key has no older entries outside this merge (`base`).
//! 3. A put that every snapshot sees gets the sequence number 0, which takes fewer bytes. Exceptions: the key has
//!    older entries outside this merge, or a kept range delete covers the put.
//! 4. With expiry, everything below the horizon of every snapshot is dropped. This includes range deletes, which hide
//!    only older entries. Rule 3 does not apply, because 0 is below any horizon.
//!
//! Over each key, the newest range delete of each stripe is kept. If every snapshot sees it, it is kept only where
//! older tables outside this merge may have entries ([`kept_spans`]).

use std::sync::Arc;

use crate::key::{EntryKind, InternalKey, SeqNo, Tag, key_prefix, replace_rest};
use crate::spans::{Span, Spans, SpansBuilder};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Drop,
    Keep(Tag),
}

#[derive(Debug)]
pub(crate) struct Retain {
    snapshots: Vec<SeqNo>,
    expired_below: Option<SeqNo>,
    spans: Arc<Spans>,
    kept: Spans,
    near: (usize, usize),
    user_key: Vec<u8>,
    stripe: Option<usize>,
}

impl Retain {
    pub(crate) fn new(mut snapshots: Vec<SeqNo>) -> Self {
        snapshots.sort_unstable();
        let (spans, kept) = (Arc::default(), Spans::default());
        let expired_below = None;
        Self { snapshots, expired_below, spans, kept, near: (0, 0), user_key: Vec::new(), stripe: None }
    }

    pub(crate) fn expiring(self, expired_below: SeqNo) -> Self {
        Self { expired_below: Some(expired_below), ..self }
    }

    pub(crate) fn with_spans(self, spans: Arc<Spans>) -> Self {
        Self { spans, ..self }
    }

    /// `has_older` returns whether tables outside this merge may have older entries in a range.
    pub(super) fn keep_spans(&mut self, has_older: impl FnMut(&[u8], Option<&[u8]>) -> bool) -> &Spans {
        self.kept = kept_spans(&self.spans, &self.snapshots, self.expired_below.unwrap_or(0), has_older);
        &self.kept
    }

    fn stripe_of(&self, seqno: SeqNo) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < seqno)
    }

    #[inline(never)]
    fn is_covered(&mut self, key: InternalKey<'_>, stripe: usize) -> bool {
        let stretch = self.spans.stretch_near(key.user, self.near.0);
        self.near.0 = stretch.place;
        stretch.seqnos.iter().any(|&span| span > key.tag.seqno() && self.stripe_of(span) == stripe)
    }

    fn is_under_kept(&mut self, user_key: &[u8]) -> bool {
        let stretch = self.kept.stretch_near(user_key, self.near.1);
        self.near.1 = stretch.place;
        !stretch.seqnos.is_empty()
    }

    /// `base` returns whether a key has no older entries outside this merge. It is called with ascending user keys,
    /// if a rule needs it.
    #[inline]
    pub(super) fn decide(&mut self, key: InternalKey<'_>, base: impl FnOnce(&[u8]) -> bool) -> Fate {
        if self.expired_below.is_some_and(|horizon| key.tag.seqno() < horizon) {
            return Fate::Drop;
        }
        let stripe = self.stripe_of(key.tag.seqno());
        if !self.spans.is_empty() && self.is_covered(key, stripe) {
            return Fate::Drop;
        }
        let same_key = self.stripe.is_some() && is_same(&self.user_key, key.user);
        if same_key && self.stripe == Some(stripe) {
            return Fate::Drop;
        }
        if !same_key {
            replace_rest(&mut self.user_key, 0, key.user);
        }
        self.stripe = Some(stripe);
        if stripe > 0 || !base(key.user) {
            return Fate::Keep(key.tag);
        }
        match key.tag.kind() {
            EntryKind::Delete | EntryKind::RangeDelete => Fate::Drop,
            EntryKind::Put if self.expired_below.is_some() => Fate::Keep(key.tag),
            EntryKind::Put if !self.kept.is_empty() && self.is_under_kept(key.user) => Fate::Keep(key.tag),
            EntryKind::Put => Fate::Keep(Tag::new(0, EntryKind::Put)),
        }
    }
}

fn kept_spans(
    spans: &Spans,
    snapshots: &[SeqNo],
    expired_below: SeqNo,
    mut has_older: impl FnMut(&[u8], Option<&[u8]>) -> bool,
) -> Spans {
    let mut kept = SpansBuilder::default();
    for Span { start, end, seqnos } in spans.iter() {
        // Only the last number can be in the first stripe, which every snapshot sees.
        let seen = snapshots.first().map_or(0, |&oldest| seqnos.partition_point(|&seqno| seqno > oldest));
        let seqnos = if has_older(start, end.map(|end| &**end)) { seqnos } else { &seqnos[..seen] };
        let seqnos = &seqnos[..seqnos.partition_point(|&seqno| seqno >= expired_below)];
        if !seqnos.is_empty() {
            kept.push(start, end, seqnos);
        }
    }
    kept.finish()
}

#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    key_prefix(a) == key_prefix(b) && a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind::{Delete, Put};

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
            (&[50], true, &[(9, Delete), (5, Put)], &[]),
            (&[50], true, &[(9, Put), (5, Put)], &[(0, Put)]),
        ];
        for (snapshots, base, entries, expected) in rows {
            assert_eq!(&kept(snapshots, *base, entries), expected, "{snapshots:?} {base} {entries:?}");
        }
    }

    fn spans(all: &[(&str, &str, &[SeqNo])]) -> Spans {
        let mut builder = SpansBuilder::default();
        for (start, end, seqnos) in all {
            let end = (!end.is_empty()).then(|| Arc::from(end.as_bytes()));
            builder.push(&Arc::from(start.as_bytes()), end.as_ref(), seqnos);
        }
        builder.finish()
    }

    #[test]
    fn entries_under_a_newer_range_delete_of_their_stripe_are_dropped() {
        type Row<'a> = (&'a [SeqNo], &'a [SeqNo], bool, bool, &'a [(SeqNo, EntryKind)]);
        // Snapshots; numbers of the span over the key; whether older tables overlap it; whether they have the key;
        // the entries kept of puts with the numbers 9, 5 and 3.
        let rows: &[Row] = &[
            (&[], &[7], true, true, &[(9, Put)]),
            (&[], &[10], true, true, &[]),
            (&[], &[10], false, false, &[]),
            // Without older tables the span is dropped, and the put above it may get the number 0.
            (&[], &[7], false, false, &[(0, Put)]),
            // Under a kept span the put keeps its number, because the span would hide the number 0.
            (&[], &[7], true, false, &[(9, Put)]),
            // A snapshot at 6 sees the entry at 5 but not the span.
            (&[6], &[7], true, true, &[(9, Put), (5, Put)]),
            (&[6], &[10], true, true, &[(5, Put)]),
            (&[6], &[10, 4], true, true, &[(5, Put)]),
            (&[6], &[10, 6], true, true, &[]),
            (&[4, 6], &[10], true, true, &[(5, Put), (3, Put)]),
        ];
        for (snapshots, numbers, older, has_key, expected) in rows {
            let list = Arc::new(spans(&[("a", "k", &[99]), ("k", "l", numbers)]));
            let mut retain = Retain::new(snapshots.to_vec()).with_spans(list);
            retain.keep_spans(|_, _| *older);
            let kept: Vec<_> = [9, 5, 3]
                .into_iter()
                .filter_map(|seqno| {
                    let key = InternalKey::new(b"k", Tag::new(seqno, Put));
                    match retain.decide(key, |_| !has_key) {
                        Fate::Keep(tag) => Some((tag.seqno(), tag.kind())),
                        Fate::Drop => None,
                    }
                })
                .collect();
            assert_eq!(&kept, expected, "{snapshots:?} {numbers:?} {older} {has_key}");
        }
    }

    #[test]
    fn a_range_delete_that_all_snapshots_see_is_kept_only_over_older_tables() {
        let all = spans(&[("a", "c", &[9, 4]), ("c", "e", &[4]), ("g", "", &[9])]);
        let kept = |snapshots: &[SeqNo], older: &str| {
            let over = |start: &[u8], end: Option<&[u8]>| {
                start <= older.as_bytes() && end.is_none_or(|end| older.as_bytes() < end)
            };
            kept_spans(&all, snapshots, 0, over)
        };
        assert_eq!(kept(&[], "f"), Spans::default());
        assert_eq!(kept(&[], "d"), spans(&[("c", "e", &[4])]));
        assert_eq!(
            kept(&[5], "f"),
            spans(&[("a", "c", &[9]), ("g", "", &[9])]),
            "the snapshot does not see 9"
        );
        assert_eq!(kept(&[5], "b"), spans(&[("a", "c", &[9, 4]), ("g", "", &[9])]));
        assert_eq!(kept(&[9], "f"), Spans::default());
        assert_eq!(kept(&[3], "f"), all);
    }

    #[test]
    fn where_entries_expire_those_below_the_horizon_are_dropped_and_no_number_becomes_0() {
        let mut retain = Retain::new(vec![6]).expiring(5).with_spans(Arc::new(spans(&[("x", "y", &[8, 4])])));
        assert_eq!(retain.keep_spans(|_, _| true), &spans(&[("x", "y", &[8])]));
        let mut fate = |user: &[u8], seqno, kind| {
            let key = InternalKey::new(user, Tag::new(seqno, kind));
            (retain.decide(key, |_| true) == Fate::Keep(key.tag), key.tag.seqno())
        };
        assert_eq!(fate(b"a", 9, Put), (true, 9));
        assert_eq!(fate(b"a", 5, Put), (true, 5), "the snapshot sees it, and it is not below the horizon");
        assert_eq!(fate(b"a", 4, Put), (false, 4));
        assert_eq!(fate(b"b", 4, Delete), (false, 4));
        assert_eq!(fate(b"c", 7, Delete), (true, 7));
        assert_eq!(fate(b"d", 0, Put), (false, 0), "written before the keyspace had a time to live");
        assert_eq!(spans_below(5), Spans::default());
    }

    /// The spans kept with this horizon, if a range delete with the number 4 overlaps older tables.
    fn spans_below(horizon: SeqNo) -> Spans {
        Retain::new(Vec::new())
            .expiring(horizon)
            .with_spans(Arc::new(spans(&[("a", "b", &[4])])))
            .keep_spans(|_, _| true)
            .clone()
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
