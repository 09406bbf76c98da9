//! Builds a new filter for a table.

use std::sync::Arc;

use super::filter::{finish_filter, start_filter};
use super::reader::Table;
use crate::error::Result;
use crate::filter::FilterPlan;
use crate::hash::key_hash;
use crate::iter::InternalIterator;

const CHECK_INTERVAL: u64 = 1024;

impl Table {
    /// Needs eight bytes of memory per key, plus the builder's memory. `check` receives the bytes in use.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`](crate::Error::Corruption) or [`Error::Io`](crate::Error::Io) if the table cannot be read;
    /// any error of `check`.
    pub(crate) fn build_filter(
        self: &Arc<Self>,
        plan: FilterPlan,
        check: &dyn Fn(usize) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let (file_id, seed) = (self.file.file_id, self.file.ctx.hash_seed);
        let mut filter = start_filter(plan, seed, file_id)?;
        let mut entries = self.iter(false);
        let (mut read, mut last) = (0, Vec::new());
        entries.seek_first()?;
        while let Some(key) = entries.key() {
            if read == 0 || key.user != last {
                filter.add_hash(key_hash(seed, key.user));
                last.clear();
                last.extend_from_slice(key.user);
            }
            read += 1;
            if read % CHECK_INTERVAL == 0 {
                check(filter.finish_bytes())?;
            }
            entries.next()?;
        }
        if filter.len() as u64 != self.properties.keys {
            let detail =
                format!("the table states {}, its blocks have {}", self.properties.keys, filter.len());
            return Err(self.file.corrupt(self.footer.properties.offset, "key count", detail));
        }
        check(filter.finish_bytes())?;
        finish_filter(filter)
    }
}
