//! Chooses and probes the filter of a table.
//!
//! A filter is bound to its table by the file id (its owner), the seed of the key hash and the number of distinct user
//! keys. Its salt is part of the file id, so false positives are independent between tables.

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

/// With five columns in the first group, 3 % of the probes for absent keys reach the second group; with four, 6 %.
const FIRST_GROUP_COLUMNS: u8 = 5;

/// A ribbon filter of several pages stores its columns in two groups, the larger half first. The first group alone
/// rejects nearly all absent keys: with 5 of 10 columns, 31 of 32. A second group makes the filter at most 128 bytes
/// longer, or a page if groups have 1 MiB or more. A probe of a present key reads one or two more cache lines.
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
    /// The key is certainly absent.
    Absent,
    Maybe,
    /// No usable filter is in memory.
    Unknown,
}
