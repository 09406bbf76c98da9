//! Lookups of many keys at a time: run by run, the memory of all filters is fetched before the first is tested,
//! and tables are read in the order of their keys.

use super::handle::TableHandle;
use super::lookup::Lookup;
use super::version::Version;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::key::Tag;
use crate::table::Verdict;

/// How many keys are looked up together at most.
pub(crate) const TOGETHER: usize = 64;

/// A set of numbers below [`TOGETHER`].
#[derive(Clone, Copy)]
struct Set(u64);

impl Set {
    fn below(len: usize) -> Self {
        Self(u64::MAX.checked_shr((TOGETHER - len) as u32).unwrap_or(0))
    }

    fn remove(&mut self, number: usize) {
        self.0 &= !(1 << number);
    }
}

/// In ascending order.
impl Iterator for Set {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (number < TOGETHER).then_some(number)
    }
}

impl Version {
    /// [`Version::get`] of up to [`TOGETHER`] lookups. Calls `found` with the number of a lookup and its newest
    /// entry, in no particular order; not for those without one.
    ///
    /// Run by run, newest first: find the table of each key, and prefetch its filter; then probe the filters;
    /// then read the tables for the keys that are left, in the order of these, so that blocks are read in the
    /// order in which they lie in the file.
    pub(crate) fn get_many(
        &self,
        lookups: &[Lookup<'_>],
        mut found: impl FnMut(usize, (Tag, EntryValue)) -> Result<()>,
    ) -> Result<()> {
        let mut wanted = Set::below(lookups.len());
        for run in self.newest_first() {
            let mut handles: [Option<&TableHandle>; TOGETHER] = [None; TOGETHER];
            for number in wanted {
                let Lookup { user_key, hash, .. } = lookups[number];
                handles[number] = run.table_for(user_key).map(|handle| &**handle);
                if let Some(handle) = handles[number].filter(|_| self.is_far()) {
                    handle.prefetch_filter(hash);
                }
            }
            let mut candidates = [(0, Verdict::Unknown); TOGETHER];
            let mut len = 0;
            for number in wanted {
                let Some(handle) = handles[number] else { continue };
                if let Some(verdict) = handle.unless_absent(&lookups[number]) {
                    candidates[len] = (number as u8, verdict);
                    len += 1;
                }
            }
            let candidates = &mut candidates[..len];
            candidates.sort_unstable_by_key(|&(number, _)| lookups[usize::from(number)].user_key);
            for &mut (number, verdict) in candidates {
                let number = usize::from(number);
                let Some(handle) = handles[number] else { continue };
                if let Some(entry) = handle.read(&lookups[number], verdict)? {
                    found(number, entry)?;
                    wanted.remove(number);
                }
            }
        }
        Ok(())
    }
}
