//! Times of buckets, for statistics.

use super::buckets::Buckets;
use super::options::Expiry;
use crate::key::SeqNo;

/// Milliseconds since 1970-01-01 UTC, or by the caller's clock, if known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketTimes {
    pub(crate) begins: Option<u64>,
    pub(crate) ends: Option<u64>,
    /// Also `None` if entries do not expire.
    pub(crate) expires: Option<u64>,
}

impl Buckets {
    pub(crate) fn times(&self, expiry: Option<&Expiry>, bucket: usize) -> BucketTimes {
        let begins = bucket.checked_sub(1).and_then(|before| self.end_of(before));
        // No boundary follows the last bucket.
        let open_end = || expiry.filter(|_| !self.is_undated()).zip(begins);
        let ends = self.end_of(bucket).or_else(|| open_end().map(|(expiry, begins)| expiry.end_of(begins)));
        let expires = expiry.zip(ends).map(|(expiry, ends)| ends.saturating_add(expiry.ttl));
        BucketTimes { begins, ends, expires }
    }

    /// `oldest`: the oldest entry.
    pub(crate) fn first_expiry(&self, expiry: &Expiry, oldest: SeqNo) -> Option<u64> {
        self.times(Some(expiry), self.bucket_of(oldest.max(self.horizon()))).expires
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Boundary;

    #[test]
    fn a_bucket_ends_at_the_next_boundary_and_the_last_one_on_the_grid() {
        let mut buckets = Buckets::default();
        let at = |time, seqno| Boundary { time, seqno };
        for boundary in [at(1000, 10), at(2000, 20), at(7500, 30)] {
            buckets.begin(boundary).unwrap();
        }
        let expiry = Expiry { buckets: 10, ..Expiry::new(10_000) };
        let times = |seqno| {
            let BucketTimes { begins, ends, expires } =
                buckets.times(Some(&expiry), buckets.bucket_of(seqno));
            (begins, ends, expires)
        };
        assert_eq!(times(9), (None, Some(1000), Some(11_000)));
        assert_eq!(times(10), (Some(1000), Some(2000), Some(12_000)));
        assert_eq!(times(29), (Some(2000), Some(7500), Some(17_500)));
        assert_eq!(times(30), (Some(7500), Some(8000), Some(18_000)));
        let first = |buckets: &Buckets| buckets.first_expiry(&expiry, 12);
        assert_eq!(first(&buckets), Some(12_000));
        let without = buckets.times(None, 3);
        assert_eq!((without.begins, without.ends, without.expires), (Some(7500), None, None));
        buckets.raise(30);
        assert_eq!(first(&buckets), Some(18_000), "the first that are visible");
        assert_eq!(Buckets::default().times(Some(&expiry), 0), BucketTimes::default());
    }
}
