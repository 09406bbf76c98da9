//! A point lookup in one table.

use super::filter_load::is_lack_of_files;
use super::filter_state::FilterState;
use super::handle::TableHandle;
use crate::counters::Stripe;
use crate::error::{Error, Result};
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag};
use crate::limits::SEQNO_MAX;
use crate::table::{TableIo, Verdict};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) seqno: SeqNo,
    pub(crate) hash: u64,
    pub(crate) stripe: Stripe,
}

impl TableHandle {
    #[inline]
    pub(super) fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = self.filter.state() {
            filter.prefetch(hash);
        }
    }

    /// Returns `None` for a trusted "absent", which is counted. Does no I/O.
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

    /// Returns `false` without counting if answers must be audited or are not trusted. Call after probing.
    #[inline]
    pub(super) fn counts_as_absent(&self, stripe: Stripe, answers: u64) -> bool {
        let counts = self.filter.is_believed();
        if counts {
            self.counters.negatives_about(stripe, answers);
        }
        counts
    }

    /// Compares one in [`audit_one_in`](crate::table::FilterTrust) "absent" answers with the data.
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

    /// Probes the part of a filter on disk. A filter with a damaged page is no longer used. The same applies to an
    /// unreadable filter without a part in memory, unless too many files are open. If the key has passed column groups
    /// in memory, the others are probed only while most such keys are absent; for present keys, a page is an additional
    /// read.
    ///
    /// # Errors
    ///
    /// With `strict_filters`, if too many files are open.
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

    fn stop_using_filter(&self, error: Error) -> bool {
        let is_new = self.filter.set_defective(error.clone());
        if is_new {
            self.shared.context.io.note_unusable_filter(self.meta.number, &error);
        }
        self.wake_background();
        is_new
    }

    #[inline]
    fn check_filter(&self) -> Result<()> {
        if !self.shared.context.trust.strict {
            return Ok(());
        }
        self.filter.error().map_or(Ok(()), |error| Err((**error).clone()))
    }
}
