//! The operations of a history: generation and shrinking. Keyspaces, snapshots and iterators have small numbers, so any
//! part of a history is a history. [`Key::bytes`] makes edge-case keys: empty, one byte, long common prefixes, ends of
//! `0xff`, longer than the bounds in the manifest.

use std::ops::Bound;

use quickcheck::{Arbitrary, Gen};

use crate::support::rng::Rng;

const KEYS: u64 = 900;

/// Keyspaces are numbers; 0 is the default keyspace.
pub(crate) const SPACES: u8 = 4;

pub(crate) type Space = u8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u16);

/// The length and the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Val(pub(crate) u32, pub(crate) u32);

pub(crate) type Bounds = (Bound<Key>, Bound<Key>);

/// The end from which each step reads, repeated: `true` is the front.
pub(crate) type Ends = Vec<bool>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    InsertIfAbsent(Val),
    /// Compares with the present state.
    Set(Option<Val>),
    /// Expects the first state, sets the second.
    SetFrom(Option<Val>, Option<Val>),
    /// Appends a byte, or deletes the key if its value has at least this length.
    Lengthen(u16),
    Replace(Val),
    Remove,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Write {
    Key(Space, Key, Option<Val>),
    Range(Space, Bounds),
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Look(Space, Key),
    Walk(Space, Bounds, Ends, u16),
    Write(Write),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reopen {
    Close,
    Drop,
    /// Closes the store, opens it for two concurrent readers, then reopens it.
    ReadOnlyBetween,
    /// A kill, like `kill -9`. Without a second disk, or with threads, the same as `Drop`.
    Kill,
}

/// A `bool` is whether to sync, `u16` a number of steps, `u64` a seed, `u8` a snapshot, an iterator, or a prefix
/// length.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Put(Space, Key, Val),
    Delete(Space, Key),
    DeleteRange(Space, Bounds, bool),
    DeletePrefix(Space, Key, u8),
    Batch(Vec<Write>, bool),
    /// The `bool` is whether to sync. Optionally writes the number of new keys to another key.
    Insert(Space, Vec<(Key, Val)>, Option<(Space, Key)>, bool),
    Change(Space, Key, Change, bool),
    /// The flags: whether a flush happens, and whether to sync. Before the commit, others write.
    Transaction(Vec<Step>, Vec<Write>, bool, bool),
    Look(Space, Vec<Key>),
    Walk(Space, Bounds, Ends, u16),
    WalkPrefix(Space, Key, u8, Ends),
    Snapshot,
    LookBack(u8, Space, Vec<Key>),
    WalkBack(u8, Space, Bounds, Ends),
    Release(u8),
    Hold(Space, Bounds, Option<u8>),
    Move(u8, Ends),
    Flush(Option<Space>),
    Compact(Option<Space>),
    Step,
    Settle,
    Sync,
    Create(Space, u64),
    Remove(Space),
    SetOptions(Space, u64),
    Refilter(Option<Space>, u64),
    Reopen(Reopen, u64),
    CompareAll,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) options: u64,
    pub(crate) ops: Vec<Op>,
}

impl Key {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let n = self.0;
        let tail = n.to_be_bytes();
        match n % 8 {
            0 if n == 0 => Vec::new(),
            0 => vec![n as u8],
            1 => [&b"user:"[..], &tail].concat(),
            2 => [&[b'p'; 60][..], &tail].concat(),
            3 => [&[0xff; 3][..], &tail, &[0xff]].concat(),
            4 => [&b"user:"[..], &tail, &[0; 2]].concat(),
            5 if n % 40 == 5 => [&vec![b'q'; 1000 + usize::from(n)][..], &tail].concat(),
            5 => vec![0; usize::from(n / 8 % 20)],
            6 => format!("item/{:03}/{}", n % 7, n).into_bytes(),
            _ => [&tail[..], &[0xff, 0xff]].concat(),
        }
    }
}

impl Val {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let Self(len, seed) = self;
        let word = Rng::new(u64::from(seed)).next().to_le_bytes();
        let mut rng = Rng::new(u64::from(seed) << 32);
        (0..len as usize).map(|at| if seed % 2 == 0 { word[at % 8] } else { rng.next() as u8 }).collect()
    }
}

fn rng(g: &mut Gen) -> Rng {
    const BYTES: [u8; 256] = {
        let mut bytes = [0; 256];
        let mut at = 0;
        while at < 256 {
            bytes[at] = at as u8;
            at += 1;
        }
        bytes
    };
    Rng::new(u64::from_le_bytes(std::array::from_fn(|_| *g.choose(&BYTES).unwrap())))
}

fn key(rng: &mut Rng) -> Key {
    let among = if rng.one_in(2) { KEYS } else { KEYS / 6 };
    Key(rng.below(among) as u16)
}

fn val(rng: &mut Rng) -> Val {
    let len = match rng.below(400) {
        0..=279 => rng.below(60),
        280..=370 => rng.below(400),
        371..=397 => 1000 + rng.below(3000),
        398 => (32 << 10) - 1 + rng.below(3),
        _ => (40 << 10) + rng.below(40 << 10),
    };
    Val(len as u32, rng.next() as u32 >> 8)
}

fn space(rng: &mut Rng) -> Space {
    [0, 0, 0, 1, 1, 2, 3][rng.below(7) as usize]
}

fn some_space(rng: &mut Rng) -> Option<Space> {
    (!rng.one_in(3)).then(|| space(rng))
}

fn keys(rng: &mut Rng) -> Vec<Key> {
    (0..1 + rng.below(8)).map(|_| key(rng)).collect()
}

fn bound(rng: &mut Rng) -> Bound<Key> {
    match rng.below(5) {
        0 | 1 => Bound::Included(key(rng)),
        2 | 3 => Bound::Excluded(key(rng)),
        _ => Bound::Unbounded,
    }
}

fn bounds(rng: &mut Rng) -> Bounds {
    match rng.below(20) {
        0 => {
            let key = key(rng);
            let end = [Bound::Included, Bound::Excluded];
            (end[rng.below(2) as usize](key), end[rng.below(2) as usize](key))
        }
        _ => (bound(rng), bound(rng)),
    }
}

fn ends(rng: &mut Rng) -> Ends {
    match rng.below(4) {
        0 => vec![true],
        1 => vec![false],
        _ => (0..1 + rng.below(7)).map(|_| rng.one_in(2)).collect(),
    }
}

fn range(rng: &mut Rng) -> Bounds {
    if rng.one_in(8) {
        return bounds(rng);
    }
    let start = key(rng);
    let end = Key((start.0 + 8 * rng.below(12) as u16).min(KEYS as u16 - 1));
    (Bound::Included(start), if rng.one_in(2) { Bound::Included(end) } else { Bound::Excluded(end) })
}

fn write(rng: &mut Rng) -> Write {
    if rng.one_in(12) {
        return Write::Range(space(rng), range(rng));
    }
    Write::Key(space(rng), key(rng), (!rng.one_in(4)).then(|| val(rng)))
}

fn step(rng: &mut Rng) -> Step {
    match rng.below(5) {
        0 | 1 => Step::Look(space(rng), key(rng)),
        2 => Step::Walk(space(rng), bounds(rng), ends(rng), 1 + rng.below(12) as u16),
        _ => Step::Write(write(rng)),
    }
}

fn change(rng: &mut Rng) -> Change {
    let some = |rng: &mut Rng| (!rng.one_in(3)).then(|| val(rng));
    match rng.below(6) {
        0 => Change::InsertIfAbsent(val(rng)),
        1 => Change::Set(some(rng)),
        2 => Change::SetFrom(some(rng), some(rng)),
        3 => Change::Lengthen(rng.below(80) as u16),
        4 => Change::Replace(val(rng)),
        _ => Change::Remove,
    }
}

impl Arbitrary for Op {
    fn arbitrary(g: &mut Gen) -> Self {
        let rng = &mut rng(g);
        match rng.below(1000) {
            0..=179 => Self::Put(space(rng), key(rng), val(rng)),
            180..=209 => {
                let entries = (0..rng.below(24)).map(|_| (key(rng), val(rng))).collect();
                let then = rng.one_in(2).then(|| (space(rng), key(rng)));
                Self::Insert(space(rng), entries, then, rng.one_in(8))
            }
            210..=249 => Self::Change(space(rng), key(rng), change(rng), rng.one_in(8)),
            250..=309 => Self::Delete(space(rng), key(rng)),
            310..=326 => Self::DeleteRange(space(rng), range(rng), rng.one_in(8)),
            327..=329 => Self::DeletePrefix(space(rng), key(rng), 2 + rng.below(9) as u8),
            330..=369 => {
                let steps = (0..1 + rng.below(8)).map(|_| step(rng)).collect();
                let others = (0..rng.below(4)).map(|_| write(rng)).collect();
                Self::Transaction(steps, others, rng.one_in(8), rng.one_in(8))
            }
            370..=459 => Self::Batch((0..rng.below(24)).map(|_| write(rng)).collect(), rng.one_in(8)),
            460..=649 => Self::Look(space(rng), keys(rng)),
            650..=709 => Self::Walk(space(rng), bounds(rng), ends(rng), 1 + rng.below(60) as u16),
            710..=729 => Self::Walk(space(rng), bounds(rng), ends(rng), u16::MAX),
            730..=759 => Self::WalkPrefix(space(rng), key(rng), rng.below(9) as u8, ends(rng)),
            760..=779 => Self::Snapshot,
            780..=809 => Self::LookBack(rng.next() as u8, space(rng), keys(rng)),
            810..=829 => Self::WalkBack(rng.next() as u8, space(rng), bounds(rng), ends(rng)),
            830..=843 => Self::Release(rng.next() as u8),
            844..=856 => Self::Hold(space(rng), bounds(rng), rng.one_in(2).then(|| rng.next() as u8)),
            857..=899 => Self::Move(rng.next() as u8, ends(rng)),
            900..=914 => Self::Flush(some_space(rng)),
            915..=917 => Self::Compact(some_space(rng)),
            918..=959 => Self::Step,
            960..=964 => Self::Settle,
            965..=969 => Self::Sync,
            970..=979 => Self::Create(1 + rng.below(3) as u8, rng.next()),
            980..=983 => Self::Remove(1 + rng.below(3) as u8),
            984..=987 => Self::SetOptions(space(rng), rng.next()),
            988..=996 => {
                let kinds = [Reopen::Close, Reopen::Drop, Reopen::ReadOnlyBetween, Reopen::Kill];
                Self::Reopen(kinds[rng.below(4) as usize], rng.next())
            }
            997 => Self::Refilter(some_space(rng), rng.next()),
            _ => Self::CompareAll,
        }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let halves = |len: usize| {
            let half = len / 2;
            [0..half, half..len].into_iter().filter(move |part| !part.is_empty() && part.len() < len)
        };
        match self.clone() {
            Self::Batch(writes, synced) => {
                Box::new(halves(writes.len()).map(move |part| Self::Batch(writes[part].to_vec(), synced)))
            }
            Self::Transaction(steps, others, is_flushed, synced) => {
                let parts = halves(steps.len());
                Box::new(parts.map(move |part| {
                    Self::Transaction(steps[part].to_vec(), others.clone(), is_flushed, synced)
                }))
            }
            Self::Insert(space, entries, then, synced) => Box::new(
                halves(entries.len())
                    .map(move |part| Self::Insert(space, entries[part].to_vec(), then, synced)),
            ),
            Self::Look(space, keys) => {
                Box::new(halves(keys.len()).map(move |part| Self::Look(space, keys[part].to_vec())))
            }
            Self::Put(space, key, Val(len, seed)) if len > 1 => {
                Box::new([0, 1, len / 2].into_iter().map(move |len| Self::Put(space, key, Val(len, seed))))
            }
            Self::Walk(space, bounds, ends, most) if ends.len() > 1 => Box::new(
                halves(ends.len()).map(move |part| Self::Walk(space, bounds, ends[part].to_vec(), most)),
            ),
            _ => quickcheck::empty_shrinker(),
        }
    }
}

impl Arbitrary for History {
    fn arbitrary(g: &mut Gen) -> Self {
        let options = rng(g).next();
        Self { options, ops: (0..g.size()).map(|_| Op::arbitrary(g)).collect() }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let options = self.options;
        Box::new(self.ops.shrink().map(move |ops| Self { options, ops }))
    }
}
