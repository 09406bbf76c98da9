//! What is known of a filter before it is read, and must be found in it.

use crate::checksum::FileId;
use crate::filter::Header;
use crate::filter::header::{DOMAIN_WHOLE_KEY, checksum};
use crate::inspect::output::{Out, Result};
use crate::table_meta::FilterRef;

/// What is known of a filter before it is read.
#[derive(Clone, Copy)]
pub(in crate::inspect) enum Known<'a> {
    /// Nothing: it stands by itself, or what should name it is damaged.
    Nothing,
    /// It stands in a table that does not name it.
    Unnamed,
    /// It is one of these keys, and named so.
    Named { filter: &'a FilterRef, owner: FileId, keys: u64, seed: Option<u64> },
}

impl Known<'_> {
    /// Whether it is of a domain that is never asked.
    pub(in crate::inspect) fn is_not_asked(&self) -> bool {
        matches!(self, Self::Named { filter, .. } if filter.domain != DOMAIN_WHOLE_KEY)
    }

    /// Compares it with the intact header that was found.
    pub(in crate::inspect) fn judge(&self, out: &mut Out<'_>, at: u64, (first, len): (&[u8], u64)) -> Result {
        let (filter, owner, keys, seed) = match self {
            Self::Nothing => return Ok(()),
            Self::Unnamed => {
                return out.damage(at, "filter block", "the properties of the table do not name it");
            }
            Self::Named { filter, owner, keys, seed } => (filter, owner, keys, seed),
        };
        if len != filter.len {
            let detail = format!("{len}, the properties name one of {} bytes", filter.len);
            return out.damage(at + 32, "filter block length", detail);
        }
        if checksum(first) != Ok(filter.header_checksum) {
            let detail = format!("the properties name the filter with {:08x}", filter.header_checksum);
            return out.damage(at + 12, "filter header checksum", detail);
        }
        if first.get(40..42) != Some(&[filter.kind, filter.domain]) {
            let detail = format!("the properties name kind {}, domain {}", filter.kind, filter.domain);
            return out.damage(at + 40, "filter kind", detail);
        }
        if first.get(16..32) != Some(owner) {
            return out.damage(at + 16, "filter owner", "is another table");
        }
        match Header::decode(first) {
            Ok(header) if header.key_count != *keys => {
                let detail = format!("{}, the table has {keys} keys", header.key_count);
                out.damage(at + 64, "filter key count", detail)
            }
            Ok(header) if seed.is_some_and(|seed| seed != header.seed) => {
                out.damage(at + 48, "filter seed", "is not that of the other filters of the store")
            }
            _ => Ok(()),
        }
    }
}
