//! The choice of a table's filter, and the answers of a probe.
//!
//! A filter is bound to its table by file id (the owner), seed of the key hash and number of distinct user keys. Its
//! salt is part of the file id, so false positives of tables are independent.

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::Result;
use crate::filter::header::DOMAIN_WHOLE_KEY;
use crate::filter::{FilterBuilder, FilterPlan, Header};
use crate::table_meta::FilterRef;

pub(in crate::table) fn start_filter(
    plan: FilterPlan,
    hash_seed: u64,
    file_id: FileId,
) -> Result<FilterBuilder> {
    let salt = LittleEndian::read_u64(&file_id[..8]);
    Ok(FilterBuilder::new(plan.kind, plan.bits_per_key, hash_seed, salt, file_id)?)
}

const TWO_GROUPS_BYTES: u64 = 32 << 10;

/// The second group is probed for 3 % of the absent keys with five columns in the first, 6 % with four.
const FIRST_GROUP_COLUMNS: u8 = 5;

/// A ribbon filter of several pages stores its columns in two groups, the larger half first. The first alone rejects
/// nearly all absent keys: 31 of 32 with 5 of 10 columns. The second section costs at most 128 bytes, or a page in
/// sections of 1 MiB and more, and a present key one or two more cache lines.
pub(in crate::table) fn finish_filter(filter: FilterBuilder) -> Result<Vec<u8>> {
    let groups = if filter.block_bytes() < TWO_GROUPS_BYTES { 1 } else { 2 };
    let block = filter.column_groups(groups).first_group(FIRST_GROUP_COLUMNS).finish()?;
    if let Ok(header) = Header::decode(&block)
        && header.answers_only_maybe()
    {
        let (kind, keys, salt) = (header.kind, header.key_count, header.salt);
        tracing::error!(%kind, keys, salt, "every build of the filter lost keys: it answers maybe for every key");
    }
    Ok(block)
}

pub(in crate::table) fn describe(
    file: Option<u64>,
    offset: u64,
    block: &[u8],
) -> Result<FilterRef, DecodeError> {
    let header = Header::decode(block)?;
    Ok(FilterRef {
        file,
        kind: header.kind as u8,
        domain: DOMAIN_WHOLE_KEY,
        offset,
        len: block.len() as u64,
        header_checksum: header.checksum,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Certainly.
    Absent,
    Maybe,
    /// There is no usable filter in memory.
    Unknown,
}
