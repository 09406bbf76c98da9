//! How long entries live, as the options of a keyspace state it, and its encoding.

use std::ops::RangeInclusive;

use crate::codec::{DecodeError, Reader, put_varints};

/// How long entries live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// Milliseconds, in [`TTL_MILLIS`].
    pub(crate) ttl: u64,
    /// Parts of the time to live in which entries expire together: 1 to [`BUCKETS_MAX`].
    pub(crate) buckets: u64,
    pub(crate) refresh: Refresh,
    pub(crate) time_source: TimeSource,
}

/// What restarts the time to live of an entry. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum Refresh {
    /// Each write of its key. An entry expires some time after it was first seen.
    #[default]
    OnWrite = 0,
    /// Each write of its key, and an insert that is refused because of it, once in a bucket. An entry expires some time
    /// after it was last seen.
    OnSight = 1,
}

/// The clock by which entries expire. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum TimeSource {
    /// The clock of the system.
    #[default]
    System = 0,
    /// The caller, by [`Keyspace::advance_time`](crate::Keyspace::advance_time).
    Caller = 1,
}

/// Times to live: one second to ten years, in milliseconds.
pub(crate) const TTL_MILLIS: RangeInclusive<u64> = 1000..=315_576_000_000;

/// Most buckets of a keyspace.
pub(crate) const BUCKETS_MAX: u64 = 128;

/// The number of buckets if only the time to live is set.
pub(crate) const BUCKETS_DEFAULT: u64 = 24;

impl Expiry {
    /// Entries that live for so many milliseconds after they were written.
    #[cfg(test)]
    pub(crate) fn new(ttl: u64) -> Self {
        let (refresh, time_source) = (Refresh::OnWrite, TimeSource::System);
        Self { ttl, buckets: BUCKETS_DEFAULT, refresh, time_source }
    }

    /// Length of a bucket, in milliseconds.
    pub(crate) fn bucket_millis(&self) -> u64 {
        (self.ttl / self.buckets.max(1)).max(1)
    }

    /// When the bucket of this time begins.
    pub(crate) fn start_of(&self, time: u64) -> u64 {
        time - time % self.bucket_millis()
    }

    /// When the bucket of this time ends.
    pub(crate) fn end_of(&self, time: u64) -> u64 {
        self.start_of(time).saturating_add(self.bucket_millis())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varints(out, &[self.ttl, self.buckets]);
        out.extend_from_slice(&[self.refresh as u8, self.time_source as u8]);
    }

    /// Decodes it. A value that this version does not know is unsupported: it decides what readers see.
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
