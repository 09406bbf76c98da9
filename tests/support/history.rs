//! The possible contents of a store after a crash. Batches and changes of keyspaces are recorded before the store gets
//! them, durability after the store reports it. A recovered store must show the data after one of the batches from the
//! last durable to the last written batch, and the keyspaces likewise. A keyspace that is created again is another
//! *incarnation*.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::store::{Contents, Entries};

pub(crate) type Incarnation = usize;

#[derive(Debug)]
pub(crate) enum Write {
    /// `None` deletes.
    Key(Incarnation, Arc<[u8]>, Option<Arc<[u8]>>),
    Range(Incarnation, Arc<[u8]>, Arc<[u8]>),
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    /// Data after each batch; the first element is the empty store.
    data: Vec<BTreeMap<Incarnation, Arc<Entries>>>,
    durable: usize,
    spaces: Vec<BTreeMap<String, Incarnation>>,
    spaces_durable: usize,
    incarnations: usize,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            data: vec![BTreeMap::new()],
            durable: 0,
            spaces: vec![BTreeMap::from([("default".to_owned(), 0)])],
            spaces_durable: 0,
            incarnations: 1,
        }
    }

    pub(crate) fn write(&mut self, writes: &[Write]) {
        let mut data = self.data.last().unwrap().clone();
        for write in writes {
            let (Write::Key(incarnation, ..) | Write::Range(incarnation, ..)) = write;
            let entries = Arc::make_mut(data.entry(*incarnation).or_default());
            match write {
                Write::Key(_, key, Some(value)) => drop(entries.insert(Arc::clone(key), Arc::clone(value))),
                Write::Key(_, key, None) => drop(entries.remove(key)),
                Write::Range(_, start, end) => entries.retain(|key, _| key < start || key >= end),
            }
        }
        self.data.push(data);
    }

    pub(crate) fn all_durable(&mut self) {
        self.durable = self.data.len() - 1;
    }

    pub(crate) fn create(&mut self, name: &str) -> Incarnation {
        let mut spaces = self.keyspaces().clone();
        spaces.insert(name.to_owned(), self.incarnations);
        self.spaces.push(spaces);
        self.incarnations += 1;
        self.incarnations - 1
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let mut spaces = self.keyspaces().clone();
        spaces.remove(name);
        self.spaces.push(spaces);
    }

    pub(crate) fn keyspaces_durable(&mut self) {
        self.spaces_durable = self.spaces.len() - 1;
    }

    pub(crate) fn keyspaces(&self) -> &BTreeMap<String, Incarnation> {
        self.spaces.last().unwrap()
    }

    pub(crate) fn written(&self) -> usize {
        self.data.len() - 1
    }

    pub(crate) fn durable(&self) -> usize {
        self.durable
    }

    pub(crate) fn newest(&self) -> Contents {
        self.at(self.written(), self.spaces.len() - 1)
    }

    fn at(&self, batches: usize, changes: usize) -> Contents {
        let data = &self.data[batches];
        let entries =
            |incarnation| data.get(incarnation).map(|entries| (**entries).clone()).unwrap_or_default();
        self.spaces[changes].iter().map(|(name, incarnation)| (name.clone(), entries(incarnation))).collect()
    }

    /// Returns the number of batches after which the store had this data, at least the number of durable batches.
    pub(crate) fn find(&self, found: &Contents) -> Result<usize, String> {
        self.find_from(self.durable, found)
    }

    pub(crate) fn find_from(&self, least: usize, found: &Contents) -> Result<usize, String> {
        for changes in (self.spaces_durable..self.spaces.len()).rev() {
            for batches in (least..self.data.len()).rev() {
                if self.matches(batches, changes, found) {
                    return Ok(batches);
                }
            }
        }
        Err(self.why_not(least, found))
    }

    fn matches(&self, batches: usize, changes: usize, found: &Contents) -> bool {
        let (data, spaces) = (&self.data[batches], &self.spaces[changes]);
        spaces.len() == found.len()
            && spaces.iter().zip(found).all(|((name, incarnation), (found_name, found))| {
                name == found_name
                    && match data.get(incarnation) {
                        Some(entries) => **entries == *found,
                        None => found.is_empty(),
                    }
            })
    }

    fn why_not(&self, least: usize, found: &Contents) -> String {
        if let Some(earlier) =
            (0..least).rev().find(|&n| (0..self.spaces.len()).any(|s| self.matches(n, s, found)))
        {
            return format!(
                "only {earlier} batches are there, {least} were durable, {} written",
                self.written()
            );
        }
        if let Some(n) =
            (least..self.data.len()).find(|&n| (0..self.spaces_durable).any(|s| self.matches(n, s, found)))
        {
            return format!("batch {n} is there, but an acknowledged change of keyspaces is not");
        }
        let newest = self.newest();
        let sizes = |contents: &Contents| {
            contents.iter().map(|(name, entries)| format!("{name}: {}", entries.len())).collect::<Vec<_>>()
        };
        let odd: Vec<String> = newest
            .iter()
            .flat_map(|(name, entries)| {
                let other = found.get(name).cloned().unwrap_or_default();
                let keys: Vec<_> = entries.keys().chain(other.keys()).cloned().collect();
                let entries = entries.clone();
                keys.into_iter()
                    .filter(move |key| entries.get(key) != other.get(key))
                    .map(move |key| format!("{name}/{}", super::store::show(&key)))
            })
            .take(6)
            .collect();
        format!(
            "this is no prefix of the {} batches ({least} durable): found {:?}, newest would be {:?}; the newest differs in {odd:?}",
            self.written(),
            sizes(found),
            sizes(&newest)
        )
    }
}
