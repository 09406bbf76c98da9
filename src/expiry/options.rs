//! The options for expiry, and their encoding.

use std::ops::RangeInclusive;

use crate::codec::{DecodeError, Reader, put_varints};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) ttl: u64,
    /// 1 to [`BUCKETS_MAX`].
    pub(crate) buckets: u64,
    pub(crate) refresh: Refresh,
    pub(crate) time_source: TimeSource,
}

/// The operations that restart the time to live of an entry. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum Refresh {
    /// Only writes of the key. With inserts, the time counts from the first one.
    #[default]
    OnWrite = 0,
    /// Also refused inserts. Only the first one of a key in each bucket writes it again, because the entries of a
    /// bucket expire together.
    OnSight = 1,
}

/// The clock by which entries expire. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum TimeSource {
    /// The system clock.
    #[default]
    System = 0,
    /// The caller, by [`Keyspace::advance_time`](crate::Keyspace::advance_time).
    Caller = 1,
}

/// One second to ten years.
pub(crate) const TTL_MILLIS: RangeInclusive<u64> = 1000..=315_576_000_000;

pub(crate) const BUCKETS_MAX: u64 = 128;

pub(crate) const BUCKETS_DEFAULT: u64 = 24;

impl Expiry {
    #[cfg(test)]
    pub(crate) fn new(ttl: u64) -> Self {
        let (refresh, time_source) = (Refresh::OnWrite, TimeSource::System);
        Self { ttl, buckets: BUCKETS_DEFAULT, refresh, time_source }
    }

    pub(crate) fn bucket_millis(&self) -> u64 {
        (self.ttl / self.buckets.max(1)).max(1)
    }

    pub(crate) fn start_of(&self, time: u64) -> u64 {
        time - time % self.bucket_millis()
    }

    pub(crate) fn end_of(&self, time: u64) -> u64 {
        self.start_of(time).saturating_add(self.bucket_millis())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varints(out, &[self.ttl, self.buckets]);
        out.extend_from_slice(&[self.refresh as u8, self.time_source as u8]);
    }

    /// Unknown values are unsupported, because they decide the visibility of entries.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let unknown = |what, found, known| Err(DecodeError::unsupported(start, what, found, known));
        let (ttl, buckets) = (reader.varint("time to live")?, reader.varint("buckets")?);
        let (refresh, source) = (reader.u8("refresh")?, reader.u8("time source")?);
        if !TTL_MILLIS.contains(&ttl) {
            return unknown("time to live", ttl, *TTL_MILLIS.end());
        }
        if !(1..=BUCKETS_MAX).contains(&buckets) {
            return unknown("buckets", buckets, BUCKETS_MAX);
        }
        let refresh = match refresh {
            0 => Refresh::OnWrite,
            1 => Refresh::OnSight,
            other => return unknown("refresh", other.into(), 1),
        };
        let time_source = match source {
            0 => TimeSource::System,
            1 => TimeSource::Caller,
            other => return unknown("time source", other.into(), 1),
        };
        Ok(Self { ttl, buckets, refresh, time_source })
    }
}
