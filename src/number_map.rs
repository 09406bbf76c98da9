//! Ordered maps and sets with numbers as keys.
//!
//! A `BTreeMap` takes eight kilobytes of code for each type. Here one tree serves all types: it maps numbers to indexes
//! in a list of entries. A removal moves the last entry to the free index. Calls for one key are O(log n).

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Bound, Index, RangeBounds};

use crate::sorting::sort_by_key;

/// Different keys have different numbers, in the order of the keys.
pub(crate) trait Number: Copy {
    fn to_u128(self) -> u128;
}

impl Number for u32 {
    fn to_u128(self) -> u128 {
        self.into()
    }
}

impl Number for u64 {
    fn to_u128(self) -> u128 {
        self.into()
    }
}

impl Number for usize {
    fn to_u128(self) -> u128 {
        self as u128
    }
}

impl Number for u128 {
    fn to_u128(self) -> u128 {
        self
    }
}

impl Number for [u8; 16] {
    fn to_u128(self) -> u128 {
        u128::from_be_bytes(self)
    }
}

impl<N: Into<u64> + Copy> Number for (u64, N) {
    fn to_u128(self) -> u128 {
        u128::from(self.0) << 64 | u128::from(self.1.into())
    }
}

/// Indexes into the entries.
type Places = BTreeMap<u128, u32>;

#[derive(Clone)]
pub(crate) struct NumberMap<K, V> {
    places: Places,
    entries: Vec<(K, V)>,
}

impl<K, V> Default for NumberMap<K, V> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), entries: Vec::new() }
    }
}

#[inline(never)]
fn find(places: &Places, number: u128) -> Option<usize> {
    places.get(&number).map(|&place| place as usize)
}

#[inline(never)]
fn set(places: &mut Places, number: u128, place: usize) {
    places.insert(number, u32::try_from(place).expect("memory holds fewer entries"));
}

#[inline(never)]
fn take(places: &mut Places, number: u128) -> Option<usize> {
    places.remove(&number).map(|place| place as usize)
}

impl<K: Number, V> NumberMap<K, V> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        find(&self.places, key.to_u128()).is_some()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        find(&self.places, key.to_u128()).map(|place| &self.entries[place].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        find(&self.places, key.to_u128()).map(|place| &mut self.entries[place].1)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let place = find(&self.places, key.to_u128()).unwrap_or_else(|| self.push(key, new()));
        &mut self.entries[place].1
    }

    fn push(&mut self, key: K, value: V) -> usize {
        let place = self.entries.len();
        self.entries.push((key, value));
        set(&mut self.places, key.to_u128(), place);
        place
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.get_mut(&key) {
            Some(before) => Some(std::mem::replace(before, value)),
            None => {
                self.push(key, value);
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = take(&mut self.places, key.to_u128())?;
        let (_, value) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            set(&mut self.places, moved.to_u128(), place);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        Iter { places: self.places.range(..), entries: &self.entries }
    }

    pub(crate) fn range(&self, range: impl RangeBounds<K>) -> Iter<'_, K, V> {
        let number = |bound: Bound<&K>| bound.map(|key| key.to_u128());
        let places = self.places.range((number(range.start_bound()), number(range.end_bound())));
        Iter { places, entries: &self.entries }
    }

    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// In no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub(crate) fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    pub(crate) fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let key = *self.first_key_value()?.0;
        self.remove(&key).map(|value| (key, value))
    }

    /// In no order.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        let gone = self.iter_mut().filter_map(|(key, value)| (!keeps(key, value)).then_some(*key));
        let gone: Vec<K> = gone.collect();
        gone.iter().for_each(|key| drop(self.remove(key)));
    }

    /// The entries from `key` on.
    pub(crate) fn split_off(&mut self, key: &K) -> Self {
        let keys: Vec<K> = self.range(key..).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.remove(&key).map(|value| (key, value))).collect()
    }
}

impl<K: Number, V> Extend<(K, V)> for NumberMap<K, V> {
    /// The last entry of a key wins.
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Number, V> FromIterator<(K, V)> for NumberMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Number, V> IntoIterator for NumberMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(mut self) -> Self::IntoIter {
        sort_by_key(&mut self.entries, |(key, _)| key.to_u128());
        self.entries.into_iter()
    }
}

impl<'m, K: Number, V> IntoIterator for &'m NumberMap<K, V> {
    type Item = (&'m K, &'m V);
    type IntoIter = Iter<'m, K, V>;

    fn into_iter(self) -> Iter<'m, K, V> {
        self.iter()
    }
}

impl<K: Number, V> Index<&K> for NumberMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

impl<K: Number + PartialEq, V: PartialEq> PartialEq for NumberMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<K: Number + Eq, V: Eq> Eq for NumberMap<K, V> {}

impl<K: Number + fmt::Debug, V: fmt::Debug> fmt::Debug for NumberMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

pub(crate) struct Iter<'m, K, V> {
    places: btree_map::Range<'m, u128, u32>,
    entries: &'m [(K, V)],
}

impl<'m, K, V> Iter<'m, K, V> {
    fn entry(&self, place: u32) -> (&'m K, &'m V) {
        let (key, value) = &self.entries[place as usize];
        (key, value)
    }
}

impl<'m, K, V> Iterator for Iter<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        let (_, place) = self.places.next()?;
        Some(self.entry(*place))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (_, place) = self.places.next_back()?;
        Some(self.entry(*place))
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NumberSet<K: Number>(NumberMap<K, ()>);

impl<K: Number> Default for NumberSet<K> {
    fn default() -> Self {
        Self(NumberMap::default())
    }
}

impl<K: Number> NumberSet<K> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|key| other.contains(key))
    }

    /// Whether it was absent.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        self.0.insert(key, ()).is_none()
    }

    pub(crate) fn remove(&mut self, key: &K) -> bool {
        self.0.remove(key).is_some()
    }

    pub(crate) fn first(&self) -> Option<&K> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<&K> {
        self.iter().next_back()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.keys()
    }

    /// In no order.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&K) -> bool) {
        self.0.retain(|key, ()| keeps(key));
    }
}

impl<K: Number> Extend<K> for NumberSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        self.0.extend(keys.into_iter().map(|key| (key, ())));
    }
}

impl<K: Number> FromIterator<K> for NumberSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key, ())).collect())
    }
}

impl<K: Number> IntoIterator for NumberSet<K> {
    type Item = K;
    type IntoIter = std::iter::Map<std::vec::IntoIter<(K, ())>, fn((K, ())) -> K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(key, ())| key)
    }
}

impl<K: Number + fmt::Debug> fmt::Debug for NumberSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_calls_have_the_results_of_a_tree() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for keys in [3, 40, 300] {
            let (mut map, mut tree) = (NumberMap::new(), BTreeMap::new());
            for call in 0..3000 {
                let key = (next(keys), next(2) as u32);
                match next(20) {
                    0..8 => assert_eq!(map.insert(key, call), tree.insert(key, call)),
                    8..14 => assert_eq!(map.remove(&key), tree.remove(&key)),
                    14 => assert_eq!(map.pop_first(), tree.pop_first()),
                    15 => {
                        let modulus = 2 + next(20);
                        map.retain(|key, _| key.0 % modulus != 0);
                        tree.retain(|key, _| key.0 % modulus != 0);
                    }
                    16 => {
                        let (from, of_tree) = (map.split_off(&key), tree.split_off(&key));
                        assert!(from.into_iter().eq(of_tree.clone()));
                        map.extend(of_tree.clone());
                        tree.extend(of_tree);
                    }
                    17 => {
                        *map.get_or_insert_with(key, || 1) += 1;
                        *tree.entry(key).or_insert(1) += 1;
                    }
                    _ => assert!(map.range(key..).eq(tree.range(key..))),
                }
                assert_eq!((map.len(), map.get(&key)), (tree.len(), tree.get(&key)));
                assert!(map.iter().eq(&tree) && map.iter().rev().eq(tree.iter().rev()));
                assert_eq!(
                    (map.first_key_value(), map.last_key_value()),
                    (tree.first_key_value(), tree.last_key_value())
                );
            }
            let copy: NumberMap<_, _> = map.clone().into_iter().rev().collect();
            assert!(copy == map && map.clone().into_iter().eq(tree));
        }
    }

    #[test]
    fn numbers_have_the_order_of_their_keys() {
        let keys = [(0, 0), (0, u64::MAX), (1, 0), (u64::MAX, 0), (u64::MAX, u64::MAX)];
        assert!(keys.is_sorted_by(|a, b| a.to_u128() < b.to_u128()));
        assert!([[0; 16], [1; 16], [255; 16]].is_sorted_by(|a, b| a.to_u128() < b.to_u128()));
        let set: NumberSet<u64> = [5, 3, 5, 9].into_iter().collect();
        assert_eq!((set.first(), set.last(), set.len()), (Some(&3), Some(&9), 3));
        assert!(set.into_iter().eq(BTreeSet::from([3, 5, 9])));
    }
}
