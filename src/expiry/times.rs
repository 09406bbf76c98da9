//! Times of buckets, for statistics.

use super::buckets::Buckets;
use super::options::Expiry;
use crate::key::SeqNo;

/// Milliseconds since 1970-01-01 UTC, or by the caller's clock, if known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketTimes {
    pub(crate) begins: Option<u64>,
    pub(crate) ends: Option<u64>,
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

    /// When entries will be hidden next, if known. No visible entry has a smaller number than `oldest`.
    pub(crate) fn next_expiry(&self, expiry: &Expiry, oldest: SeqNo) -> Option<u64> {
        let first = self.bucket_of(oldest.max(self.horizon()));
        // The bucket of `oldest` is never skipped.
        let is_skipped = |bucket: &usize| oldest < self.horizon() && self.is_empty(*bucket);
        let mut visible = (first..self.open()).skip_while(is_skipped);
        let bucket = visible.find(|bucket| self.end_of(*bucket).is_some()).unwrap_or(self.open());
        self.times(Some(expiry), bucket).expires
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
        let first = |buckets: &Buckets| buckets.next_expiry(&expiry, 12);
        assert_eq!(first(&buckets), Some(12_000));
        let without = buckets.times(None, 3);
        assert_eq!((without.begins, without.ends, without.expires), (Some(7500), None, None));
        buckets.raise(30);
        assert_eq!(first(&buckets), Some(18_000), "the first that are visible");
        assert_eq!(Buckets::default().times(Some(&expiry), 0), BucketTimes::default());
        // The bucket at 20 has one number: the oldest entry's, or an unused one.
        let mut single = Buckets::default();
        for boundary in [at(1000, 10), at(2000, 20), at(3000, 21), at(4000, 30)] {
            single.begin(boundary).unwrap();
        }
        single.raise(15);
        let next = |buckets: &Buckets, oldest| buckets.next_expiry(&expiry, oldest);
        assert_eq!([15, 20, 21].map(|oldest| next(&single, oldest)), [12_000, 13_000, 14_000].map(Some));
        single.raise(20);
        assert_eq!([12, 20].map(|oldest| next(&single, oldest)), [14_000, 13_000].map(Some));
        // Before and after the caller sets a time.
        let mut undated = Buckets::default();
        undated.begin(at(0, 10)).unwrap();
        assert_eq!(undated.next_expiry(&expiry, 9), None);
        undated.begin(at(5500, 20)).unwrap();
        assert_eq!(
            [9, 10, 20].map(|oldest| undated.next_expiry(&expiry, oldest)),
            [15_500, 15_500, 16_000].map(Some)
        );
        let mut single = Buckets::default();
        [at(0, 10), at(5500, 11), at(6500, 30)]
            .into_iter()
            .for_each(|boundary| single.begin(boundary).unwrap());
        assert_eq!(next(&single, 9), Some(15_500));
    }
}
