//! Union, intersection and key count of standard Bloom filters.
//!
//! Filters with equal bits, probes, seed and salt ([`FilterBuilder::bits_and_probes`]) set the same bits for a key. The
//! bits set in either filter are the filter of the union. The bits set in both filters contain the filter of the common
//! keys.
//!
//! With `k` probes, `n` keys leave `m · e^(-kn/m)` of `m` bits clear. So the key count of a result is `n = -m/k ·
//! ln(clear / m)` (Swamidass and Baldi 2007).

use alloc::vec::Vec;
use core::fmt;

use super::bits::BITS_PER_KEY_MAX;
use super::bloom::{Bloom, all_ones};
use super::builder::FilterBuilder;
use super::header::Kind;
use super::layout::Shape;
use super::reader::Filter;
use crate::checksum::FileId;
use crate::error::FilterError;
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;

/// Two filters have no union or intersection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CombineError {
    /// A filter has another kind, or no keys.
    #[non_exhaustive]
    Kind(Kind),
    /// A different parameter: `"bits"`, `"probes"`, `"seed"` or `"salt"`.
    #[non_exhaustive]
    Differ(&'static str),
    /// The result could not be built.
    #[non_exhaustive]
    Build(FilterError),
}

impl fmt::Display for CombineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "a {kind:?} filter, or one without keys, cannot be combined"),
            Self::Differ(what) => write!(f, "filters that differ in their {what} cannot be combined"),
            Self::Build(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CombineError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        if let Self::Build(error) = self { Some(error) } else { None }
    }
}

impl<B: AsRef<[u8]>> Filter<B> {
    /// Returns the filter block of the keys of either filter. It equals a block built from the keys, except for its key
    /// count, which is an [estimate](Filter::estimate_key_count). Linear.
    ///
    /// # Errors
    ///
    /// [`CombineError`] if a filter has another kind or no keys, or if the parameters differ.
    pub fn union<C: AsRef<[u8]>>(&self, other: &Filter<C>, owner: FileId) -> Result<Vec<u8>, CombineError> {
        let (bloom, one, two) = alike(self, other)?;
        let bits = merged(one, two, |one, two| one | two);
        let most = self.key_count().saturating_add(other.key_count());
        let keys = clamped(estimate(bloom, &bits), self.key_count().max(other.key_count()), most);
        build(self, owner, bloom, &bits, keys)
    }

    /// Returns a filter block of the common keys, with a higher rate than a block built from them. Its key count is the
    /// sum of both estimates minus the union's, at least 1. Linear.
    ///
    /// # Errors
    ///
    /// As [`Filter::union`].
    pub fn intersection<C: AsRef<[u8]>>(
        &self,
        other: &Filter<C>,
        owner: FileId,
    ) -> Result<Vec<u8>, CombineError> {
        let (bloom, one, two) = alike(self, other)?;
        let bits = merged(one, two, |one, two| one & two);
        let union = merged(one, two, |one, two| one | two);
        let common = [one, two, &union].map(|bits| estimate(bloom, bits));
        let common = common[0].zip(common[1]).zip(common[2]).map(|((one, two), union)| one + two - union);
        let keys = clamped(common, 1, self.key_count().min(other.key_count()));
        build(self, owner, bloom, &bits, keys)
    }

    /// Estimates the distinct keys of a standard Bloom filter. `None` for other kinds, or if all bits are set. Linear.
    #[must_use]
    pub fn estimate_key_count(&self) -> Option<f64> {
        let (Shape::Bloom(bloom), bits) = self.shape_and_section() else { return None };
        estimate(bloom, bits)
    }
}

type Alike<'a> = (Bloom, &'a [u8], &'a [u8]);

fn alike<'a, B: AsRef<[u8]>, C: AsRef<[u8]>>(
    one: &'a Filter<B>,
    two: &'a Filter<C>,
) -> Result<Alike<'a>, CombineError> {
    let (first, bits) = one.shape_and_section();
    let (second, other_bits) = two.shape_and_section();
    let Shape::Bloom(first) = first else { return Err(CombineError::Kind(one.kind())) };
    let Shape::Bloom(second) = second else { return Err(CombineError::Kind(two.kind())) };
    let (header, other) = (one.header(), two.header());
    for (what, same) in [
        ("bits", first.bits == second.bits && bits.len() == other_bits.len()),
        ("probes", first.probes == second.probes),
        ("seed", header.seed == other.seed),
        ("salt", header.salt == other.salt),
    ] {
        if !same {
            return Err(CombineError::Differ(what));
        }
    }
    Ok((first, bits, other_bits))
}

fn merged(one: &[u8], two: &[u8], merge: impl Fn(u8, u8) -> u8) -> Vec<u8> {
    one.iter().zip(two).map(|(&one, &two)| merge(one, two)).collect()
}

fn estimate(bloom: Bloom, bits: &[u8]) -> Option<f64> {
    let (all, ones) = (bloom.bits as f64, all_ones(bits) as f64);
    (ones < all).then(|| -(-ones / all).ln_1p() * all / f64::from(bloom.probes))
}

fn clamped(estimate: Option<f64>, least: u64, most: u64) -> u64 {
    estimate.map_or(most, |keys| (keys.round() as u64).clamp(least, most.max(least)))
}

fn build<B: AsRef<[u8]>>(
    like: &Filter<B>,
    owner: FileId,
    bloom: Bloom,
    bits: &[u8],
    keys: u64,
) -> Result<Vec<u8>, CombineError> {
    let header = like.header();
    FilterBuilder::new(Kind::Bloom, BITS_PER_KEY_MAX, header.seed, header.salt, owner)
        .and_then(|builder| builder.finish_bloom(bloom, bits, keys))
        .map_err(CombineError::Build)
}

#[cfg(test)]
mod tests {
    use super::super::Expect;
    use super::*;

    fn filter(bits: u64, probes: u8, salt: u64, keys: std::ops::Range<u64>) -> Filter<Vec<u8>> {
        let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, 1, salt, [2; 16]).unwrap();
        builder = builder.bits_and_probes(bits, probes).unwrap();
        keys.for_each(|key| builder.add_key(&key.to_le_bytes()));
        open(builder.finish().unwrap())
    }

    fn open(bytes: Vec<u8>) -> Filter<Vec<u8>> {
        let filter = Filter::open(bytes, Expect::anything()).unwrap();
        filter.verify().unwrap();
        filter
    }

    #[test]
    fn a_union_has_the_bits_of_a_filter_of_all_keys() {
        let (one, two) = (filter(99_991, 7, 3, 0..6000), filter(99_991, 7, 3, 4000..10_000));
        let union = open(one.union(&two, [9; 16]).unwrap());
        let built = filter(99_991, 7, 3, 0..10_000);
        assert_eq!(union.shape_and_section(), built.shape_and_section());
        assert_eq!((union.owner(), union.header().rate), ([9; 16], built.header().rate));
        assert!(union.key_count().abs_diff(10_000) < 200, "{}", union.key_count());
    }

    #[test]
    fn an_intersection_has_all_common_keys_and_few_others() {
        let (one, two) = (filter(99_991, 7, 3, 0..6000), filter(99_991, 7, 3, 4000..10_000));
        let both = open(one.intersection(&two, [9; 16]).unwrap());
        assert!((4000..6000u64).all(|key| both.may_contain_key(&key.to_le_bytes())));
        assert!(both.key_count().abs_diff(2000) < 200, "{}", both.key_count());
        assert!(both.predicted_rate() < one.predicted_rate());
        let others = (0..4000u64).chain(6000..10_000);
        let found = others.filter(|key| both.may_contain_key(&key.to_le_bytes())).count();
        assert!(found < 400, "{found}");
        // Without common keys, the key count is 1, so that the result has bits.
        let none = open(one.intersection(&filter(99_991, 7, 3, 20_000..20_001), [9; 16]).unwrap());
        assert_eq!(none.key_count(), 1);
    }

    #[test]
    fn the_number_of_keys_is_estimated_from_the_bits() {
        for keys in [1, 10, 1000, 20_000] {
            let estimate = filter(100_003, 5, 3, 0..keys).estimate_key_count().unwrap();
            assert!((estimate - keys as f64).abs() < 1.0 + 0.03 * keys as f64, "{keys}: {estimate}");
        }
        assert_eq!(filter(1, 1, 3, 0..5).estimate_key_count(), None);
    }

    #[test]
    fn any_number_of_bits_is_usable() {
        for bits in [1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 4095, 4097, 65_537, 99_991] {
            let filter = filter(bits, 3, 3, 0..20);
            assert_eq!(filter.bits(), bits);
            assert!((0..20u64).all(|key| filter.may_contain_key(&key.to_le_bytes())));
            let portable = filter.portable();
            assert!((0..20u64).all(|key| portable.may_contain_key(&key.to_le_bytes())));
        }
        let builder = || FilterBuilder::new(Kind::Bloom, 10.0, 1, 2, [2; 16]).unwrap();
        assert!(builder().bits_and_probes(0, 1).is_err());
        assert!(builder().bits_and_probes(1, 0).is_err() && builder().bits_and_probes(1, 31).is_err());
    }

    #[test]
    fn filters_that_are_not_alike_are_refused() {
        let one = filter(1000, 7, 3, 0..60);
        let differ = |two: &Filter<Vec<u8>>| match one.union(two, [9; 16]).unwrap_err() {
            CombineError::Differ(what) => what,
            error => panic!("{error}"),
        };
        assert_eq!(differ(&filter(1001, 7, 3, 0..60)), "bits");
        assert_eq!(differ(&filter(1000, 6, 3, 0..60)), "probes");
        assert_eq!(differ(&filter(1000, 7, 4, 0..60)), "salt");
        let mut seeded = FilterBuilder::new(Kind::Bloom, 10.0, 8, 3, [2; 16]).unwrap();
        seeded = seeded.bits_and_probes(1000, 7).unwrap();
        seeded.add_key(b"apple");
        assert_eq!(differ(&open(seeded.finish().unwrap())), "seed");
        for kind in [Kind::BlockedBloom, Kind::Ribbon] {
            let mut other = FilterBuilder::new(kind, 10.0, 1, 3, [2; 16]).unwrap();
            other.add_key(b"apple");
            let other = open(other.finish().unwrap());
            assert!(
                matches!(one.intersection(&other, [9; 16]), Err(CombineError::Kind(found)) if found == kind)
            );
            assert_eq!(other.estimate_key_count(), None);
        }
        assert!(matches!(
            one.union(&filter(1000, 7, 3, 0..0), [9; 16]),
            Err(CombineError::Kind(Kind::Bloom))
        ));
    }
}
