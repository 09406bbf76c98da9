//! The filter of a table: the choice of the filter, and the possible answers of a probe.
//!
//! The filter of a table is bound to it by the table's file id (the filter's owner), by the seed of the key
//! hash and by the number of distinct user keys; its salt is taken from the file id, so that the false
//! positives of two tables are independent.

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::Result;
use crate::filter::header::DOMAIN_WHOLE_KEY;
use crate::filter::{FilterBuilder, FilterPlan, Header};
use crate::table_meta::FilterRef;

/// Starts the filter of the table with this file id.
pub(in crate::table) fn start_filter(
    plan: FilterPlan,
    hash_seed: u64,
    file_id: FileId,
) -> Result<FilterBuilder> {
    let salt = LittleEndian::read_u64(&file_id[..8]);
    Ok(FilterBuilder::new(plan.kind, plan.bits_per_key, hash_seed, salt, file_id)?)
}

/// Length of a filter from which its columns are stored in two groups.
const TWO_GROUPS_BYTES: u64 = 32 << 10;

/// The first of two groups has at least this many columns. A key that passes the first group is probed in the
/// second, which costs a read if that is not in memory: 3 % of the absent keys with five columns, 6 % with
/// four.
const FIRST_GROUP_COLUMNS: u8 = 5;

/// Makes the block of a table's filter.
///
/// A ribbon filter of several pages stores its columns in two groups, the larger half first. If memory is
/// short, the first group alone rejects nearly all absent keys: 31 of 32 with 5 of 10 columns. The second
/// section costs at most 128 bytes (a page, for sections of 1 MiB and more): 0.1 % at 100 000 keys. A present
/// key is probed in both groups, which costs one or two more cache lines before its block is read.
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

/// The reference to a filter block at `offset` of a file; `None` is the table's own file.
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

/// The answer of a filter about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The table certainly does not hold the key.
    Absent,
    /// The table may hold the key.
    Maybe,
    /// No usable filter exists, or none is in memory.
    Unknown,
}
