//! The options of a keyspace, and their encoding in the manifest.

use std::time::Duration;

use bytes::Bytes;

use super::edit::LEVELS;
use crate::block::Compression;
use crate::codec::{CRITICAL, DecodeError, Reader, put_field, put_u64, put_varint, put_varints};
use crate::error::{Error, Result};
use crate::expiry::options::{BUCKETS_DEFAULT, BUCKETS_MAX, Expiry, Refresh, TTL_MILLIS, TimeSource};
use crate::filter::{FilterAllocation, FilterKind, FilterPolicy, FilterSize};

/// Options of one keyspace, saved by the store; see [`Db::keyspace`](crate::Db::keyspace). With the feature `serde`,
/// they are serialized under the names of these methods.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// use sievedb::{Compression, KeyspaceOptions};
///
/// let options = KeyspaceOptions::new().compression(Compression::None).memtable_bytes(8 << 20);
/// let logs = db.keyspace("logs", options.clone())?;
/// assert_eq!(logs.options(), options);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct KeyspaceOptions {
    pub(crate) filter: FilterPolicy,
    pub(crate) block_bytes: usize,
    pub(crate) compression: [Compression; LEVELS],
    pub(crate) table_bytes: u64,
    /// 0 means a share of the memory budget.
    pub(crate) memtable_bytes: usize,
    pub(crate) l0_runs: usize,
    /// 0 means four memtables.
    pub(crate) level_base_bytes: u64,
    pub(crate) level_ratio: u64,
    pub(crate) ttl: Option<Duration>,
    pub(crate) ttl_buckets: u64,
    pub(crate) refresh: Refresh,
    pub(crate) time_source: TimeSource,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        let mut compression = [Compression::Lz4; LEVELS];
        compression[..2].fill(Compression::None);
        Self {
            filter: FilterPolicy::default(),
            block_bytes: 4 << 10,
            compression,
            table_bytes: 64 << 20,
            memtable_bytes: 0,
            l0_runs: 4,
            level_base_bytes: 0,
            level_ratio: 10,
            ttl: None,
            ttl_buckets: BUCKETS_DEFAULT,
            refresh: Refresh::default(),
            time_source: TimeSource::default(),
        }
    }
}

impl KeyspaceOptions {
    /// The default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the filters of new tables. The default is [`FilterKind::Auto`](crate::FilterKind::Auto) with 10 bits per
    /// key.
    ///
    /// ```
    /// use sievedb::{FilterKind, FilterPolicy, KeyspaceOptions};
    ///
    /// let precise = FilterPolicy::new(FilterKind::Ribbon).false_positive_rate(0.0001);
    /// let options = KeyspaceOptions::new().filter(precise);
    /// ```
    #[must_use]
    pub fn filter(mut self, policy: FilterPolicy) -> Self {
        self.filter = policy;
        self
    }

    /// Sets the size of a data block before compression, in bytes: 512 bytes to 1 MiB. The default is 4 KiB. A block with a
    /// long entry is longer.
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets the same compression for all levels.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = [compression; LEVELS];
        self
    }

    /// Sets the compression of one level, 0 to 6; other numbers are ignored. By default, levels 0 and 1 are not
    /// compressed and the others use LZ4.
    ///
    /// ```
    /// use sievedb::{Compression, KeyspaceOptions};
    ///
    /// let options = KeyspaceOptions::new().compression_at(6, Compression::None);
    /// ```
    #[must_use]
    pub fn compression_at(mut self, level: usize, compression: Compression) -> Self {
        if let Some(slot) = self.compression.get_mut(level) {
            *slot = compression;
        }
        self
    }

    /// Sets the length in bytes at which a compaction ends a table. The default is 64 MiB. On a small disk, the length
    /// is at most a 64th of the sum of the space free at the opening and the store's files, but at least 64 KiB.
    #[must_use]
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.table_bytes = bytes;
        self
    }

    /// Sets the size in bytes at which the memtable is flushed, at most 3 GiB. The default is half of
    /// [`Options::memtable_budget`](crate::Options::memtable_budget), at most 64 MiB. On a small disk, it is at most a 16th
    /// of the space free at the opening, and at most the limit in [`KeyspaceOptions::table_bytes`], but at least 64 KiB.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// Sets the number of runs at which level 0 is compacted. The default is 4. After a second without work, background
    /// threads compact half this number, if the overlap in level 1 has at most four times their bytes. Writers are slowed
    /// above twice this number, and wait at three times this number; memtables that wait for a flush count as runs.
    #[must_use]
    pub fn l0_runs(mut self, runs: usize) -> Self {
        self.l0_runs = runs;
        self
    }

    /// Sets the size of level 1 in bytes. The default is four memtables.
    #[must_use]
    pub fn level_base_bytes(mut self, bytes: u64) -> Self {
        self.level_base_bytes = bytes;
        self
    }

    /// Sets the size ratio of a level to the level above it. The default is 10.
    #[must_use]
    pub fn level_ratio(mut self, ratio: u64) -> Self {
        self.level_ratio = ratio;
        self
    }

    /// Returns the filters of new tables, see [`KeyspaceOptions::filter`].
    ///
    /// ```
    /// use sievedb::{FilterKind, KeyspaceOptions};
    ///
    /// assert_eq!(KeyspaceOptions::new().filter_policy().kind, FilterKind::Auto);
    /// ```
    #[must_use]
    pub fn filter_policy(&self) -> &FilterPolicy {
        &self.filter
    }

    /// Sets how long entries live: one second to ten years, in whole milliseconds. An entry is visible for at least
    /// this time after its write. It is hidden at most one bucket ([`KeyspaceOptions::ttl_buckets`]) later. By default,
    /// entries do not expire. See the [guide](crate::guide::deletion).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use std::time::Duration;
    /// use sievedb::KeyspaceOptions;
    ///
    /// let day = KeyspaceOptions::new().ttl(Duration::from_secs(24 * 3600));
    /// let seen = db.keyspace("events", day)?;
    /// assert!(seen.insert_if_absent("id", "")?);
    /// assert!(!seen.insert_if_absent("id", "")?); // it was seen in the last 24 hours
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the number of buckets per [`KeyspaceOptions::ttl`]: 1 to 128. The default is 24. The entries of a bucket
    /// expire together. More buckets make expiry more precise, but need more tables.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let options = sievedb::KeyspaceOptions::new().ttl(Duration::from_secs(60)).ttl_buckets(6);
    /// ```
    #[must_use]
    pub fn ttl_buckets(mut self, buckets: u64) -> Self {
        self.ttl_buckets = buckets;
        self
    }

    /// Sets the operations that restart the time to live. The default is [`Refresh::OnWrite`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use sievedb::{KeyspaceOptions, Refresh};
    ///
    /// let options = KeyspaceOptions::new().ttl(Duration::from_secs(60)).refresh(Refresh::OnSight);
    /// ```
    #[must_use]
    pub fn refresh(mut self, refresh: Refresh) -> Self {
        self.refresh = refresh;
        self
    }

    /// Sets the clock of expiry. The default is [`TimeSource::System`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use sievedb::{KeyspaceOptions, TimeSource};
    ///
    /// let options = KeyspaceOptions::new().ttl(Duration::from_secs(60)).time_source(TimeSource::Caller);
    /// ```
    #[must_use]
    pub fn time_source(mut self, source: TimeSource) -> Self {
        self.time_source = source;
        self
    }

    pub(crate) fn expiry(&self) -> Option<Expiry> {
        let ttl = u64::try_from(self.ttl?.as_millis()).unwrap_or(u64::MAX);
        let (buckets, refresh, time_source) = (self.ttl_buckets, self.refresh, self.time_source);
        Some(Expiry { ttl, buckets, refresh, time_source })
    }

    pub(crate) fn with_expiry(mut self, expiry: &Expiry) -> Self {
        self.ttl = Some(Duration::from_millis(expiry.ttl));
        self.ttl_buckets = expiry.buckets;
        self.refresh = expiry.refresh;
        self.time_source = expiry.time_source;
        self
    }

    fn validate_expiry(&self) -> Result<()> {
        let Some(ttl) = self.ttl else {
            let default = Self::default();
            let is_default = (self.ttl_buckets, self.refresh, self.time_source)
                == (default.ttl_buckets, default.refresh, default.time_source);
            let needs = "ttl_buckets, refresh and time_source need a ttl";
            return if is_default { Ok(()) } else { Err(Error::invalid(needs)) };
        };
        let is_whole = ttl.subsec_nanos().is_multiple_of(1_000_000);
        if !is_whole || !u64::try_from(ttl.as_millis()).is_ok_and(|ttl| TTL_MILLIS.contains(&ttl)) {
            return Err(Error::invalid("ttl is not between 1 second and 10 years, in whole milliseconds"));
        }
        if !(1..=BUCKETS_MAX).contains(&self.ttl_buckets) {
            return Err(Error::invalid("ttl_buckets is not between 1 and 128"));
        }
        Ok(())
    }

    pub(crate) fn validate(&self) -> Result<()> {
        self.validate_expiry()?;
        self.filter.validate()?;
        if !(512..=1 << 20).contains(&self.block_bytes) {
            return Err(Error::invalid("block_bytes is not between 512 and 1 MiB"));
        }
        if self.table_bytes < 1 << 10 {
            return Err(Error::invalid("table_bytes is below 1 KiB"));
        }
        if !(1..=1000).contains(&self.l0_runs) || !(2..=1000).contains(&self.level_ratio) {
            return Err(Error::invalid(
                "l0_runs is not between 1 and 1000 or level_ratio not between 2 and 1000",
            ));
        }
        Ok(())
    }
}

// The field number in the manifest, shifted left by one. Append only, see format.md.
pub(crate) const COMPARATOR: u64 = 1 << 1 | CRITICAL;
pub(crate) const HASH_DOMAIN: u64 = 2 << 1 | CRITICAL;
pub(crate) const FILTER: u64 = 3 << 1;
pub(crate) const BLOCK_BYTES: u64 = 4 << 1;
pub(crate) const COMPRESSION: u64 = 5 << 1;
pub(crate) const SHAPE: u64 = 6 << 1;
pub(crate) const HINTS: u64 = 7 << 1;
pub(crate) const EXPIRY: u64 = 8 << 1 | CRITICAL;

pub(crate) const EXPECT_HITS: u64 = 1;

/// Keys are in bytewise order.
const BYTEWISE: u64 = 1;
/// Filters contain whole user keys.
const WHOLE_KEY: u64 = 0;

impl KeyspaceOptions {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_field(&mut out, COMPARATOR, |out| put_varint(out, BYTEWISE));
        put_field(&mut out, HASH_DOMAIN, |out| put_varint(out, WHOLE_KEY));
        put_field(&mut out, FILTER, |out| {
            let (code, number) = self.filter.size.code();
            out.extend_from_slice(&[self.filter.kind.code(), code, self.filter.allocation.code()]);
            put_u64(out, number.to_bits());
        });
        if self.filter.expect_hits {
            put_field(&mut out, HINTS, |out| put_varint(out, EXPECT_HITS));
        }
        put_field(&mut out, BLOCK_BYTES, |out| put_varint(out, self.block_bytes as u64));
        put_field(&mut out, COMPRESSION, |out| out.extend(self.compression.iter().map(|kind| *kind as u8)));
        put_field(&mut out, SHAPE, |out| {
            let (memtable_bytes, l0_runs) = (self.memtable_bytes as u64, self.l0_runs as u64);
            let base = self.level_base_bytes;
            put_varints(out, &[self.table_bytes, memtable_bytes, l0_runs, base, self.level_ratio]);
        });
        if let Some(expiry) = self.expiry() {
            put_field(&mut out, EXPIRY, |out| expiry.encode(out));
        }
        out.into()
    }

    /// Ignores unknown fields that are not critical, and replaces unknown values by defaults. Both affect only new
    /// tables.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut options = Self::default();
        let (mut hints, mut expiry) = (0, None);
        let mut reader = Reader::new(bytes);
        while let Some(mut field) = reader.field()? {
            let payload = &mut field.reader;
            match field.tag {
                COMPARATOR => expect(payload.varint("comparator")?, BYTEWISE, "comparator")?,
                HASH_DOMAIN => expect(payload.varint("hash domain")?, WHOLE_KEY, "hash domain")?,
                FILTER => options.filter = decode_filter(payload)?.unwrap_or_default(),
                BLOCK_BYTES => options.block_bytes = size(payload, "block bytes")?,
                COMPRESSION => {
                    for slot in &mut options.compression {
                        *slot = Compression::from_u8(payload.u8("compression")?).unwrap_or(Compression::None);
                    }
                }
                SHAPE => {
                    options.table_bytes = payload.varint("table bytes")?;
                    options.memtable_bytes = size(payload, "memtable bytes")?;
                    options.l0_runs = size(payload, "level 0 runs")?;
                    options.level_base_bytes = payload.varint("level base bytes")?;
                    options.level_ratio = payload.varint("level ratio")?;
                }
                HINTS => hints = payload.varint("hints")?,
                EXPIRY => {
                    if expiry.replace(Expiry::decode(payload)?).is_some() {
                        return Err(DecodeError::corrupt(field.offset, "expiry", "a field stands twice"));
                    }
                    field.finish("expiry")?;
                }
                _ => field.skip_unknown()?,
            }
        }
        options.filter.expect_hits = hints & EXPECT_HITS != 0;
        let options = if options.validate().is_ok() { options } else { Self::default() };
        Ok(match expiry {
            Some(expiry) => options.with_expiry(&expiry),
            None => options,
        })
    }
}

fn size(reader: &mut Reader<'_>, what: &'static str) -> Result<usize, DecodeError> {
    Ok(usize::try_from(reader.varint(what)?).unwrap_or(usize::MAX))
}

fn expect(found: u64, known: u64, what: &'static str) -> Result<(), DecodeError> {
    if found == known { Ok(()) } else { Err(DecodeError::unsupported(0, what, found, known)) }
}

pub(crate) fn decode_filter(reader: &mut Reader<'_>) -> Result<Option<FilterPolicy>, DecodeError> {
    let kind = FilterKind::from_code(reader.u8("filter kind")?);
    let code = reader.u8("filter size code")?;
    let allocation = FilterAllocation::from_code(reader.u8("filter allocation")?);
    let size = FilterSize::from_code(code, f64::from_bits(reader.u64("filter size")?));
    let (Some(kind), Some(allocation), Some(size)) = (kind, allocation, size) else { return Ok(None) };
    let mut policy = FilterPolicy::new(kind).allocation(allocation);
    policy.size = size;
    Ok(policy.validate().is_ok().then_some(policy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::DecodeErrorKind;

    #[test]
    fn keyspace_options_come_back() {
        let options = KeyspaceOptions::new()
            .filter(FilterPolicy::new(FilterKind::Bloom).false_positive_rate(0.004).expect_hits(true))
            .block_bytes(16 << 10)
            .compression(Compression::None)
            .compression_at(6, Compression::Lz4)
            .table_bytes(1 << 20)
            .memtable_bytes(1 << 19)
            .l0_runs(2)
            .level_base_bytes(1 << 21)
            .level_ratio(4);
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
        let default = KeyspaceOptions::default();
        assert_eq!(KeyspaceOptions::decode(&default.encode()), Ok(default));
    }

    #[test]
    fn expiry_comes_back_and_what_is_unknown_in_it_is_unsupported() {
        let expiry = Expiry {
            ttl: 86_400_000,
            buckets: 24,
            refresh: Refresh::OnSight,
            time_source: TimeSource::Caller,
        };
        let options = options_with(expiry);
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options.clone()));
        let other = KeyspaceOptions { block_bytes: 1, ..options };
        assert_eq!(KeyspaceOptions::decode(&other.encode()).unwrap().expiry(), Some(expiry));

        let decode = |numbers: [u64; 2], codes: &[u8]| {
            let mut bytes = Vec::new();
            put_field(&mut bytes, EXPIRY, |out| {
                put_varints(out, &numbers);
                out.extend_from_slice(codes);
            });
            KeyspaceOptions::decode(&bytes).map_err(|error| (error.what, error.kind))
        };
        assert!(decode([1000, 1], &[0, 0]).is_ok() && decode([315_576_000_000, 128], &[1, 1]).is_ok());
        for (numbers, codes, what) in [
            ([999, 1], [0, 0], "time to live"),
            ([315_576_000_001, 1], [0, 0], "time to live"),
            ([1000, 0], [0, 0], "buckets"),
            ([1000, 129], [0, 0], "buckets"),
            ([1000, 1], [2, 0], "refresh"),
            ([1000, 1], [0, 2], "time source"),
        ] {
            let (found, kind) = decode(numbers, &codes).unwrap_err();
            assert_eq!(found, what);
            assert!(matches!(kind, DecodeErrorKind::Unsupported { .. }));
        }
        for codes in [&[0][..], &[0, 0, 0]] {
            let (_, kind) = decode([1000, 1], codes).unwrap_err();
            assert!(matches!(kind, DecodeErrorKind::Corrupt(_)));
        }
        let twice = options_with(expiry).encode().repeat(2);
        assert!(KeyspaceOptions::decode(&twice).is_err());
    }

    fn options_with(expiry: Expiry) -> KeyspaceOptions {
        KeyspaceOptions::default().with_expiry(&expiry)
    }

    #[test]
    fn every_kind_of_filter_has_its_code_and_comes_back() {
        assert_eq!(FilterKind::ALL.map(FilterKind::code), [0, 255, 1, 2, 3]);
        for kind in FilterKind::ALL {
            let options = KeyspaceOptions::new().filter(FilterPolicy::new(kind).bits_per_key(7.5));
            assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options), "{kind:?}");
        }
    }

    #[test]
    fn an_unknown_key_order_is_refused_and_an_unknown_filter_is_not() {
        let mut other = Vec::new();
        put_field(&mut other, COMPARATOR, |out| put_varint(out, 2));
        assert!(KeyspaceOptions::decode(&other).is_err());
        let mut strange = Vec::new();
        put_field(&mut strange, FILTER, |out| out.extend_from_slice(&[200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(KeyspaceOptions::decode(&strange), Ok(KeyspaceOptions::default()));
        for size in [0, 1 << 23, u64::MAX] {
            let mut strange = Vec::new();
            put_field(&mut strange, BLOCK_BYTES, |out| put_varint(out, size));
            assert_eq!(KeyspaceOptions::decode(&strange), Ok(KeyspaceOptions::default()), "{size}");
        }
    }
}
