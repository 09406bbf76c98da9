//! Point lookups in a version.
//!
//! In each run, newest first, at most one table can have the key. It is read unless its filter answers "absent".
//! Filters in memory are probed here, others in [`TableHandle::read`].

use super::handle::TableHandle;
use super::run::Run;
use super::table_lookup::Lookup;
use super::version::Version;
use crate::counters::Stripe;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag, key_prefix};
use crate::table::Verdict;

/// Number of runs whose tables are located before the first probe.
const WAVE: usize = 8;

pub(crate) struct Candidate<'a> {
    run: usize,
    handle: &'a TableHandle,
    verdict: Verdict,
}

impl Version {
    /// A table that cannot be opened is an error only if no newer table has the key.
    #[cfg(test)]
    pub(crate) fn get(&self, lookup: &Lookup<'_>) -> Result<Option<(Tag, EntryValue)>> {
        self.candidate(lookup.user_key, lookup.hash, lookup.stripe)
            .map_or(Ok(None), |newest| self.get_from(newest, lookup))
    }

    /// Returns the newest table that may have the key. Counts "absent" answers. Inlined, because most lookups of
    /// absent keys end here.
    #[inline(always)]
    pub(crate) fn candidate(&self, user_key: &[u8], hash: u64, stripe: Stripe) -> Option<Candidate<'_>> {
        match self.newest_first() {
            [run] => {
                let handle = run.table_for(user_key)?;
                handle.unless_absent(hash, stripe).map(|verdict| Candidate { run: 0, handle, verdict })
            }
            runs => first_candidate(runs, self.is_far(), user_key, hash, stripe),
        }
    }

    #[inline(never)]
    pub(crate) fn get_from(
        &self,
        newest: Candidate<'_>,
        lookup: &Lookup<'_>,
    ) -> Result<Option<(Tag, EntryValue)>> {
        let (mut runs, mut next) = (self.newest_first(), Some(newest));
        while let Some(Candidate { run, handle, verdict }) = next {
            let found = handle.read(lookup, verdict)?;
            if found.is_some() {
                return Ok(found);
            }
            runs = &runs[run + 1..];
            next = first_candidate(runs, self.is_far(), lookup.user_key, lookup.hash, lookup.stripe);
        }
        Ok(None)
    }

    #[inline(never)]
    pub(crate) fn get_under_spans(&self, lookup: &Lookup<'_>) -> Result<Option<(Tag, EntryValue)>> {
        for run in self.newest_first() {
            let Some(handle) = run.table_for(lookup.user_key) else { continue };
            let span = handle.covering(lookup.user_key, lookup.seqno)?;
            if handle.meta.entries > 0
                && span.is_none_or(|span| span < handle.meta.seqno_max)
                && let Some(verdict) = handle.unless_absent(lookup.hash, lookup.stripe)
                && let Some((tag, value)) = handle.read(lookup, verdict)?
                && span.is_none_or(|span| span < tag.seqno())
            {
                return Ok(Some((tag, value)));
            }
            if span.is_some() {
                break;
            }
        }
        Ok(None)
    }

    /// Whether the key has an entry or range delete above `seqno`. Reads only tables that have such sequence numbers.
    pub(crate) fn has_newer(&self, lookup: &Lookup<'_>, seqno: SeqNo) -> Result<bool> {
        for run in self.newest_first() {
            let newer = run.table_for(lookup.user_key).filter(|handle| handle.meta.seqno_max > seqno);
            let Some(handle) = newer else { continue };
            if handle.covering(lookup.user_key, lookup.seqno)?.is_some_and(|span| span > seqno) {
                return Ok(true);
            }
            let Some(verdict) = handle.unless_absent(lookup.hash, lookup.stripe) else { continue };
            if let Some((tag, _)) = handle.read(lookup, verdict)? {
                return Ok(tag.seqno() > seqno);
            }
        }
        Ok(false)
    }

    pub(crate) fn may_contain(&self, user_key: &[u8], hash: u64) -> bool {
        let tables = self.newest_first().iter().filter_map(|run| run.table_for(user_key));
        let mut candidates = tables.filter(|handle| handle.meta.entries > 0);
        candidates.any(|handle| handle.filter.probe(&handle.shared.context, hash) != Verdict::Absent)
    }
}

/// `far` filters are outside the processor's caches and are prefetched before the first probe.
#[inline(never)]
fn first_candidate<'a>(
    runs: &'a [Run],
    far: bool,
    user_key: &[u8],
    hash: u64,
    stripe: Stripe,
) -> Option<Candidate<'a>> {
    let part = key_prefix(user_key);
    if far {
        return first_prefetched(runs, user_key, part, hash, stripe);
    }
    for (number, run) in runs.iter().enumerate() {
        let Some(handle) = run.table_with(user_key, part) else { continue };
        if let Some(verdict) = handle.unless_absent(hash, stripe) {
            return Some(Candidate { run: number, handle, verdict });
        }
    }
    None
}

#[inline(never)]
fn first_prefetched<'a>(
    runs: &'a [Run],
    user_key: &[u8],
    part: u64,
    hash: u64,
    stripe: Stripe,
) -> Option<Candidate<'a>> {
    for (number, wave) in runs.chunks(WAVE).enumerate() {
        let mut handles: [Option<&TableHandle>; WAVE] = [None; WAVE];
        for (handle, run) in handles.iter_mut().zip(wave) {
            *handle = run.table_with(user_key, part).map(|handle| &**handle);
            if let Some(handle) = handle {
                handle.prefetch_filter(hash);
            }
        }
        for (run, handle) in handles.iter().enumerate().take(wave.len()) {
            let Some(handle) = handle else { continue };
            if let Some(verdict) = handle.unless_absent(hash, stripe) {
                return Some(Candidate { run: number * WAVE + run, handle, verdict });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fs::MemFs;
    use crate::hash::key_hash;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn filters_that_are_prefetched_lead_to_the_same_table_as_others() {
        let runs = 2 * WAVE as u32 + 3;
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let keyspace = KeyspaceOptions::new().l0_runs(runs as usize);
        let db = options.default_keyspace(keyspace).open("/db").unwrap();
        let key = |number: u32| [b"key ", &number.to_be_bytes()[..]].concat();
        // One run in four has only the smallest keys.
        for run in 0..runs {
            let numbers = (0..200).map(|number| number * runs + run);
            numbers.filter(|n| run % 4 != 1 || *n < 500).for_each(|n| db.put(key(n), "").unwrap());
            db.flush().unwrap();
        }
        db.open_tables().unwrap();
        let (seed, versions) = db.versions();
        let version = &versions[0];
        assert_eq!(version.newest_first().len(), runs as usize);
        let stripe = Stripe::of_thread();
        let mut found = Vec::new();
        for number in 0..300 * runs {
            let user_key = key(number);
            let hash = key_hash(seed, &user_key);
            let [near, far] = [false, true].map(|far| {
                let candidate = first_candidate(version.newest_first(), far, &user_key, hash, stripe)?;
                Some((candidate.run, candidate.handle.meta.number, candidate.verdict))
            });
            assert_eq!(near, far, "{number}");
            found.extend(near.map(|(run, ..)| run));
        }
        assert!((0..runs as usize).all(|run| found.contains(&run)), "a run was never found");
    }
}
