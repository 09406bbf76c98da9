use byteorder::{BigEndian, ByteOrder};

use super::Plan;
use crate::keys::KeySet;
use crate::random::{below, mix};

pub(crate) const TTL_MILLIS: u64 = 24 * 3600 * 1000;

pub(crate) const BUCKETS: u32 = 24;

const START_MILLIS: u64 = 1_700_000_000_000 / TTL_MILLIS * TTL_MILLIS;

/// One in so many events repeats an earlier one.
const REPEATED: u64 = 8;

pub(crate) type Id = Vec<u8>;

pub(crate) fn end_of_bucket(time: u64) -> u64 {
    let bucket = TTL_MILLIS / u64::from(BUCKETS);
    (time / bucket + 1) * bucket
}

/// Big-endian, so that keys are in the order of times.
pub(crate) fn in_order(time: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    BigEndian::write_u64(&mut bytes, time);
    bytes
}

pub(crate) struct Stream {
    per_window: u32,
    keys: KeySet,
}

impl Stream {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { per_window: plan.per_window, keys: plan.keys }
    }

    pub(crate) fn time(&self, event: u32) -> u64 {
        START_MILLIS + TTL_MILLIS * u64::from(event) / u64::from(self.per_window)
    }

    pub(crate) fn original(&self, event: u32) -> u32 {
        let mut event = event;
        while event > 0 && mix(40, event.into()).is_multiple_of(REPEATED) {
            let furthest = u64::from(event).min(u64::from(self.per_window) * 3 / 2);
            event -= 1 + below(mix(41, event.into()), furthest) as u32;
        }
        event
    }

    pub(crate) fn id(&self, event: u32) -> Id {
        let mut id = Id::new();
        self.keys.write(self.original(event), &mut id);
        id
    }
}
