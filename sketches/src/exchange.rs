//! Sends keys that the other side lacks, by Bloom filters.
//!
//! One side sends a Bloom filter of its set, the other its keys that the filter lacks. Further rounds need other seeds.
//!
//! Byers, Considine, Mitzenmacher, Rost, *Informed content delivery*, ToN 2004, section 4.

use crate::bloom::Bloom;

/// The keys of `mine` that are certainly not in `theirs`.
///
/// # Guarantees
///
/// Returns on average a share `1 - rate` of the missing keys, and no others.
///
/// # Cost
///
/// A probe per key of `mine`; about ten bits per key of `theirs`.
///
/// # When not to use it
///
/// Small differences and complete lists: [`Rateless`](crate::Rateless).
///
/// ```
/// use sievedb_sketches::{Bloom, certainly_missing};
///
/// let mut theirs = Bloom::with_rate(2, 0.01, 7)?;
/// theirs.insert("apple");
/// let send: Vec<_> = certainly_missing(&theirs, ["apple", "banana"]).collect();
/// assert_eq!(send, ["banana"]);
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
pub fn certainly_missing<K: AsRef<[u8]>>(
    theirs: &Bloom,
    mine: impl IntoIterator<Item = K>,
) -> impl Iterator<Item = K> {
    mine.into_iter().filter(|key| !theirs.contains(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quickcheck::quickcheck;

    use super::*;
    use crate::probes::Hashing;
    use crate::testing::assert_rate;

    quickcheck! {
        fn nothing_is_sent_that_the_other_side_has(mine: Vec<u8>, theirs: BTreeSet<u8>, bits: u8) -> bool {
            let mut filter = Bloom::with_shape(1 + u64::from(bits), 3, Hashing::Enhanced, 1).unwrap();
            filter.extend(theirs.iter().map(|&key| [key]));
            let sent: Vec<u8> = certainly_missing(&filter, mine.iter().map(|&key| [key])).map(|[key]| key).collect();
            sent.iter().all(|key| mine.contains(key) && !theirs.contains(key))
        }
    }

    #[test]
    fn what_is_sent_is_missing_and_the_rate_of_what_is_missing_is_not_sent() {
        let mut theirs = Bloom::with_rate(20_000, 0.05, 1).unwrap();
        (0..20_000u32).for_each(|key| {
            theirs.insert(&key.to_be_bytes());
        });
        let mine = (10_000..60_000u32).map(u32::to_be_bytes);
        let sent: Vec<u32> = certainly_missing(&theirs, mine).map(u32::from_be_bytes).collect();
        assert!(sent.iter().all(|&key| key >= 20_000));
        assert_rate("not sent", 40_000 - sent.len() as u64, 40_000, 0.05, 0.1);
    }
}
