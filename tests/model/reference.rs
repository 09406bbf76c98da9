use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::ops::{Bounds, SPACES, Space};

pub(crate) type Entry = (Arc<[u8]>, Arc<[u8]>);
pub(crate) type Map = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Reference {
    maps: BTreeMap<u32, Arc<Map>>,
    current: [Option<u32>; SPACES as usize],
    next: u32,
}

pub(crate) type ByteBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub(crate) fn byte_bounds(bounds: Bounds) -> ByteBounds {
    (bounds.0.map(|key| key.bytes()), bounds.1.map(|key| key.bytes()))
}

impl Reference {
    pub(crate) fn create(&mut self, space: Space) {
        self.maps.insert(self.next, Arc::default());
        self.current[usize::from(space)] = Some(self.next);
        self.next += 1;
    }

    pub(crate) fn remove(&mut self, space: Space) {
        if let Some(number) = self.current[usize::from(space)].take() {
            self.maps.remove(&number);
        }
    }

    pub(crate) fn number(&self, space: Space) -> Option<u32> {
        self.current[usize::from(space)]
    }

    pub(crate) fn write(&mut self, space: Space, key: Vec<u8>, value: Option<Vec<u8>>) {
        let number = self.number(space).expect("only existing keyspaces are written to");
        let map = Arc::make_mut(self.maps.get_mut(&number).expect("a current keyspace has a map"));
        match value {
            Some(value) => map.insert(key.into(), value.into()),
            None => map.remove(&key[..]),
        };
    }

    pub(crate) fn delete(&mut self, space: Space, is_deleted: impl Fn(&[u8]) -> bool) {
        let number = self.number(space).expect("only existing keyspaces are written to");
        let map = Arc::make_mut(self.maps.get_mut(&number).expect("a current keyspace has a map"));
        map.retain(|key, _| !is_deleted(key));
    }

    pub(crate) fn map(&self, number: u32) -> Arc<Map> {
        self.maps.get(&number).cloned().unwrap_or_default()
    }
}

pub(crate) fn is_reversed((start, end): &ByteBounds) -> bool {
    use Bound::{Excluded, Included};
    match (start, end) {
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start > end,
        _ => false,
    }
}

pub(crate) fn half_open((start, end): &ByteBounds) -> (Vec<u8>, Option<Vec<u8>>) {
    let after = |key: &[u8]| [key, &[0]].concat();
    let start = match start {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    };
    let end = match end {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    (start, end)
}

pub(crate) fn within(map: &Map, bounds: &ByteBounds) -> VecDeque<Entry> {
    let inside = |key: &[u8]| RangeBounds::<Vec<u8>>::contains(bounds, &key.to_vec());
    entries(map.iter().filter(|(key, _)| inside(key)))
}

pub(crate) fn starting_with(map: &Map, prefix: &[u8]) -> VecDeque<Entry> {
    entries(map.iter().filter(|(key, _)| key.starts_with(prefix)))
}

fn entries<'m>(found: impl Iterator<Item = (&'m Arc<[u8]>, &'m Arc<[u8]>)>) -> VecDeque<Entry> {
    found.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
}
