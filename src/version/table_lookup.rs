//! A point lookup in one table: its filter, and its data unless the filter says "absent".

use super::filter_load::is_lack_of_files;
use super::filter_state::FilterState;
use super::handle::TableHandle;
use crate::counters::Stripe;
use crate::error::{Error, Result};
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag};
use crate::limits::SEQNO_MAX;
use crate::table::{TableIo, Verdict};

/// A point lookup. The key is hashed once for all tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) seqno: SeqNo,
    pub(crate) hash: u64,
    /// Where the calling thread counts.
    pub(crate) stripe: Stripe,
}

impl TableHandle {
    /// Prefetches the memory that probing the filter reads, if it is in memory.
    #[inline]
    pub(super) fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = self.filter.state() {
            filter.prefetch(hash);
        }
    }

    /// Probes a filter that is in memory. `None` if it says "absent" and is to be believed, which is counted.
    /// Does no I/O.
    #[inline(always)]
    pub(super) fn unless_absent(&self, hash: u64, stripe: Stripe) -> Option<Verdict> {
        let Some(FilterState::Loaded(filter)) = self.filter.state() else { return Some(Verdict::Unknown) };
        self.note_use();
        if filter.may_contain(hash) {
            Some(Verdict::Maybe)
        } else if self.counts_as_absent(stripe, 1) {
            None
        } else {
            Some(Verdict::Absent)
        }
    }

    /// The newest entry of the key in this table that the lookup can see. The verdict is that of
    /// [`TableHandle::unless_absent`].
    #[inline(never)]
    pub(super) fn read(
        &self,
        lookup: &Lookup<'_>,
        mut verdict: Verdict,
    ) -> Result<Option<(Tag, EntryValue)>> {
        if verdict == Verdict::Unknown {
            verdict = self.open_filter()?.map_or(Verdict::Unknown, |filter| filter.probe(lookup.hash));
        }
        if verdict != Verdict::Absent && self.filter.has_pages() {
            verdict = self.read_filter_pages(lookup.hash, verdict)?;
        }
        if verdict == Verdict::Absent && self.audit_absent(lookup)? {
            return Ok(None);
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

    /// Counts so many "absent" of the filter, unless they are not to be believed or may have to be audited: then
    /// nothing is counted, and the answer is `false`. The state of the filter is read after it was probed.
    #[inline]
    pub(super) fn counts_as_absent(&self, stripe: Stripe, answers: u64) -> bool {
        let counts = self.filter.is_believed();
        if counts {
            self.counters.negatives_about(stripe, answers);
        }
        counts
    }

    /// Counts an "absent" of the filter and returns whether it is right. One in
    /// [`audit_one_in`](crate::table::FilterTrust) is compared with the table's data, which may take a read.
    fn audit_absent(&self, lookup: &Lookup<'_>) -> Result<bool> {
        if self.counts_as_absent(lookup.stripe, 1) {
            return Ok(true);
        }
        if self.filter.is_defective() {
            return Ok(false);
        }
        let one_in = self.shared.context.trust.audit_one_in;
        if self.counters.negative().is_multiple_of(one_in) {
            self.read_and_compare(lookup.user_key)
        } else {
            Ok(true)
        }
    }

    /// Whether the table has no entry of this key, with any sequence number. If it has one, the filter was
    /// wrong and is not used any more.
    #[cold]
    fn read_and_compare(&self, user_key: &[u8]) -> Result<bool> {
        let (table, io) = (self.open()?, &self.shared.context.io);
        TableIo::count(&io.audited);
        if table.get(user_key, SEQNO_MAX)?.is_none() {
            return Ok(true);
        }
        if self.stop_using_filter(table.corrupt_filter("it denies a key that the table holds")) {
            TableIo::count(&io.audit_failures);
        }
        Ok(false)
    }

    /// Probes by pages what is not in memory of a filter, and reads the pages that this takes. A filter of which a
    /// page is damaged is not used any more, nor is one that is not in memory and cannot be read. That too many files
    /// are open says nothing about the filter.
    ///
    /// If some column groups are in memory, the others are probed only as long as most keys that pass these turn
    /// out to be absent: to a lookup of a present key a page is one more read.
    ///
    /// # Errors
    ///
    /// With `strict_filters`, that too many files are open.
    #[cold]
    fn read_filter_pages(&self, hash: u64, verdict: Verdict) -> Result<Verdict> {
        let has_passed = verdict == Verdict::Maybe;
        if has_passed {
            let counts = self.counters.counts();
            if self.counters.denials_by_page() + counts.false_positives < counts.true_positives {
                return Ok(verdict);
            }
        }
        let probed = self.filter.read_pages(&self.shared.context, hash, verdict);
        if has_passed && matches!(probed, Ok(Verdict::Absent)) {
            self.counters.denied_by_page();
        }
        probed.or_else(|error| {
            // What is in memory was verified.
            if has_passed && matches!(error, Error::Io { .. }) {
                return Ok(verdict);
            }
            if !is_lack_of_files(&error) {
                self.stop_using_filter(error);
            } else if self.shared.context.trust.strict {
                return Err(error);
            }
            Ok(Verdict::Unknown)
        })
    }

    /// Stops using the filter and asks the background to rebuild it. `false` if it was out of use already.
    fn stop_using_filter(&self, error: Error) -> bool {
        let is_new = self.filter.set_defective(error.clone());
        if is_new {
            self.shared.context.io.note_unusable_filter(self.meta.number, &error);
        }
        self.wake_background();
        is_new
    }

    /// With `strict_filters`, returns the error of an unusable filter.
    #[inline]
    fn check_filter(&self) -> Result<()> {
        if !self.shared.context.trust.strict {
            return Ok(());
        }
        self.filter.error().map_or(Ok(()), |error| Err((**error).clone()))
    }
}
