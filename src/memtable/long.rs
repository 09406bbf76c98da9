//! The long entries of a memtable. Each has its own allocation, shared by values returned to readers. The entries are
//! listed in regions of doubling size.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{BufMut, Bytes, BytesMut};

use super::digits::{Difference, Target};
use super::node::SHORT_BYTES_MAX;
use crate::key::{Tag, common_prefix};

const FIRST: u32 = 4;

/// For 2^25 entries, which take at least 32 GiB.
const REGIONS: usize = 24;

const SLOT_BYTES: usize = size_of::<OnceLock<Bytes>>();

/// The reference count and the overhead of the allocator.
const FRAMING_BYTES: usize = 64;

type Region = Box<[OnceLock<Bytes>]>;

#[derive(Default)]
pub(super) struct LongEntries {
    regions: [OnceLock<Region>; REGIONS],
    len: AtomicU32,
}

impl LongEntries {
    pub(super) fn add(&self, key: &[u8], value: &[u8]) -> (u32, usize) {
        let mut data = BytesMut::with_capacity(key.len() + value.len());
        data.put_slice(key);
        data.put_slice(value);
        let mut allocated = data.len() + FRAMING_BYTES;
        let number = self.len.load(Ordering::Relaxed);
        let (region, at) = locate(number);
        let slots = self.regions[region].get_or_init(|| {
            allocated += slots_of(region) * SLOT_BYTES;
            (0..slots_of(region)).map(|_| OnceLock::new()).collect()
        });
        let taken = slots[at].set(data.freeze()).is_err();
        debug_assert!(!taken, "a number is given once");
        self.len.store(number + 1, Ordering::Relaxed);
        (number, allocated)
    }

    pub(super) fn get(&self, number: u32) -> &Bytes {
        let (region, at) = locate(number);
        let found = self.regions[region].get().and_then(|slots| slots[at].get());
        found.expect("a long entry is there before its node is linked")
    }

    pub(super) fn ahead_max(&self) -> usize {
        (self.len.load(Ordering::Relaxed) + FIRST) as usize * SLOT_BYTES
    }
}

pub(super) fn overhead_max(entries: usize, bytes: usize, memtables: usize) -> usize {
    let long = entries.min(bytes / SHORT_BYTES_MAX);
    let first = long.min(memtables) * FIRST as usize;
    long * FRAMING_BYTES + (2 * long + first) * SLOT_BYTES
}

pub(super) fn difference(key: &[u8], tag: Tag, target: &Target<'_>) -> Difference {
    let other = target.user();
    let same = common_prefix(key, other);
    let byte = |key: &[u8], at| key.get(at).copied().unwrap_or_default();
    match (same..key.len().max(other.len())).find(|&at| byte(key, at) != byte(other, at)) {
        Some(at) => Difference::of_bytes(2 * at as u32, byte(key, at), byte(other, at)),
        None => Difference::behind_keys((key.len(), tag.to_u64()), target),
    }
}

fn locate(number: u32) -> (usize, usize) {
    if number < FIRST {
        return (0, number as usize);
    }
    let doublings = number.ilog2() - FIRST.ilog2();
    (1 + doublings as usize, (number - (FIRST << doublings)) as usize)
}

fn slots_of(region: usize) -> usize {
    (FIRST as usize) << region.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_by_their_numbers() {
        let long = LongEntries::default();
        let (mut allocated, mut bytes) = (0, 0);
        for number in 0..1000u32 {
            let (key, value) = (number.to_be_bytes(), vec![number as u8; number as usize % 7]);
            let ahead = long.ahead_max();
            let (given, new) = long.add(&key, &value);
            assert!(given == number && new <= 4 + value.len() + FRAMING_BYTES + SLOT_BYTES + ahead);
            (allocated, bytes) = (allocated + new, bytes + 4 + value.len());
        }
        for number in 0..1000u32 {
            let data = long.get(number);
            assert_eq!(data[..4], number.to_be_bytes());
            assert!(
                data.len() == 4 + number as usize % 7 && data[4..].iter().all(|&byte| byte == number as u8)
            );
        }
        assert!(allocated <= bytes + overhead_max(1000, 1000 * SHORT_BYTES_MAX, 1));
    }
}
