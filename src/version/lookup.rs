//! Point lookups in a version.

use super::filter::FilterState;
use super::handle::TableHandle;
use super::version::Version;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag};
use crate::table::Verdict;

/// A point lookup. The key is hashed once for all tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) seqno: SeqNo,
    pub(crate) hash: u64,
}

/// How many filters a lookup probes before it reads the first data block.
const WAVE: usize = 16;

impl Version {
    /// The newest entry of the key that the lookup can see.
    ///
    /// In waves: find the table of each run by its fences, and prefetch its filter; then probe the filters;
    /// then, newest first, read the index and a data block of each table whose filter did not say "absent". A
    /// paged filter is probed when its table's turn comes, for that reads. A table that cannot be opened is
    /// an error only when its turn comes: what is newer is found.
    pub(crate) fn get(&self, lookup: Lookup<'_>) -> Result<Option<(Tag, EntryValue)>> {
        let mut candidates = self.all_runs().filter_map(|(_, run)| run.table_for(lookup.user_key)).peekable();
        while candidates.peek().is_some() {
            let mut wave: [Option<(&TableHandle, Option<&FilterState>)>; WAVE] = [None; WAVE];
            let mut unopened = None;
            for (slot, handle) in wave.iter_mut().zip(candidates.by_ref().take(WAVE)) {
                let filter = match handle.open_filter() {
                    Ok(filter) => filter,
                    Err(error) => {
                        unopened = Some(error);
                        break;
                    }
                };
                if let Some(filter) = filter {
                    filter.prefetch(lookup.hash);
                }
                *slot = Some((handle, filter));
            }
            let mut verdicts = [Verdict::Unknown; WAVE];
            for (verdict, (_, filter)) in verdicts.iter_mut().zip(wave.iter().flatten()) {
                *verdict = filter.map_or(Verdict::Unknown, |filter| filter.probe(lookup.hash));
            }
            for ((handle, ..), verdict) in wave.iter().flatten().zip(verdicts) {
                let found = handle.get(lookup, verdict)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            if let Some(error) = unopened {
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Whether a table may hold the key, as far as memory knows: a table not opened yet may.
    pub(crate) fn may_contain(&self, user_key: &[u8], hash: u64) -> bool {
        let mut candidates = self.all_runs().filter_map(|(_, run)| run.table_for(user_key));
        candidates.any(|handle| handle.probe(hash) != Verdict::Absent)
    }
}

impl TableHandle {
    /// The newest entry of the key in this table that the lookup can see, where a filter in memory has given
    /// this verdict.
    #[inline]
    fn get(&self, lookup: Lookup<'_>, mut verdict: Verdict) -> Result<Option<(Tag, EntryValue)>> {
        if verdict == Verdict::Absent && self.audit_absent(lookup.user_key)? {
            return Ok(None);
        }
        if verdict == Verdict::Unknown {
            verdict = self.read_filter_pages(lookup.hash);
            if verdict == Verdict::Absent && self.audit_absent(lookup.user_key)? {
                return Ok(None);
            }
        }
        self.check_filter()?;
        let found = self.open()?.get(lookup.user_key, lookup.seqno)?;
        match verdict {
            Verdict::Maybe => self.counters.positive(found.is_some()),
            _ if found.is_none() => self.counters.unfiltered_miss(),
            _ => {}
        }
        Ok(found)
    }
}
