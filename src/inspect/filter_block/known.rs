//! The required properties of a filter.

use crate::checksum::FileId;
use crate::filter::Header;
use crate::filter::header::{DOMAIN_WHOLE_KEY, checksum};
use crate::inspect::output::{Out, Result};
use crate::table_meta::FilterRef;

#[derive(Clone, Copy)]
pub(in crate::inspect) enum Known<'a> {
    /// The block is described alone, or the reference to it is damaged.
    Nothing,
    Unnamed,
    Named {
        filter: &'a FilterRef,
        owner: FileId,
        keys: u64,
        seed: Option<u64>,
    },
}

impl Known<'_> {
    pub(super) fn is_never_probed(&self) -> bool {
        matches!(self, Self::Named { filter, .. } if filter.domain != DOMAIN_WHOLE_KEY)
    }

    pub(super) fn judge(&self, out: &mut Out<'_>, at: u64, (first, len): (&[u8], u64)) -> Result {
        let (filter, owner, keys, seed) = match self {
            Self::Nothing => return Ok(()),
            Self::Unnamed => {
                return out.damage(at, "filter block", "the properties of the table do not name it");
            }
            Self::Named { filter, owner, keys, seed } => (filter, owner, keys, seed),
        };
        let FilterRef { kind, domain, header_checksum, .. } = filter;
        let header = Header::decode(first);
        let (offset, what, detail) = if len != filter.len {
            (32, "filter block length", format!("{len}, the properties name one of {} bytes", filter.len))
        } else if checksum(first) != Ok(*header_checksum) {
            (
                12,
                "filter header checksum",
                format!("the properties name the filter with {header_checksum:08x}"),
            )
        } else if first.get(40..42) != Some(&[*kind, *domain]) {
            (40, "filter kind", format!("the properties name kind {kind}, domain {domain}"))
        } else if first.get(16..32) != Some(owner) {
            (16, "filter owner", "is another table".into())
        } else if let Ok(header) = &header
            && header.key_count != *keys
        {
            (64, "filter key count", format!("{}, the table has {keys} keys", header.key_count))
        } else if let (Ok(header), Some(seed)) = (&header, seed)
            && header.seed != *seed
        {
            (48, "filter seed", "differs from the other filters of the store".into())
        } else {
            return Ok(());
        };
        out.damage(at + offset, what, detail)
    }
}
