//! The interface of an engine, and the common settings. Writes are asynchronous because surrealkv's are. Calls are static: the
//! loop costs the same for every engine.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use byteorder::{ByteOrder, LittleEndian};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) table_bytes: u64,
    /// Each further level is ten times as large.
    pub(crate) level_base_bytes: u64,
    pub(crate) writes: Writes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Writes {
    None,
    Some,
    Only,
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, end)| {
            let entry = (&self.bytes[start..key_end], &self.bytes[key_end..end]);
            start = end;
            entry
        })
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) entries: u64,
    pub(crate) sum: u64,
}

impl Seen {
    #[inline]
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        let key = key.len() as u64 + u64::from(key[key.len() - 1]);
        self.sum = self.sum.wrapping_add(key).wrapping_add(word(value));
    }
}

#[inline]
pub(crate) fn word(value: &[u8]) -> u64 {
    value.get(..8).map_or(0, LittleEndian::read_u64)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Adding {
    pub(crate) yields: bool,
    pub(crate) synced: bool,
}

impl Adding {
    pub(crate) fn between(self) {
        if self.yields {
            std::thread::yield_now();
        }
    }
}

#[inline]
pub(crate) fn one_more(value: &[u8]) -> Vec<u8> {
    let mut next = value.to_vec();
    next.resize(value.len().max(8), 0);
    LittleEndian::write_u64(&mut next[..8], word(value).wrapping_add(1));
    next
}

pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// Whether the engine gives real answers, which are then checked.
    const ANSWERS: bool = true;

    fn open(dir: &Path, settings: &Settings) -> Result<Self>;

    fn get(&self, key: &[u8]) -> Result<Option<u64>>;

    fn count_present(&self, keys: &[Vec<u8>]) -> Result<usize> {
        keys.iter().try_fold(0, |count, key| Ok(count + usize::from(self.get(key)?.is_some())))
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen>;

    fn scan_back(&self, entries: usize) -> Result<Seen>;

    fn put(&self, key: &[u8], value: &[u8], synced: bool) -> impl Future<Output = Result<()>> + Send;

    fn write(&self, batch: &Batch) -> impl Future<Output = Result<()>> + Send;

    fn delete(&self, key: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Increments the [`word`] of these keys' values in one transaction, retried after conflicts. Returns the number of
    /// conflicts.
    fn add(&self, keys: &[Vec<u8>], how: Adding) -> impl Future<Output = Result<u64>> + Send {
        _ = (keys, how);
        async { Err("the suite has no transactions for this engine".into()) }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()>;

    fn compact(&mut self) -> Result<()>;

    fn blocks(&self) -> Option<u64> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }

    fn close(self) -> Result<()>;

    fn run_clients<T, F>(&self, clients: Vec<F>) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        std::thread::scope(|scope| {
            let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| done(client))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked")?).collect()
        })
    }
}

pub(crate) fn done<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the calls of this engine never wait"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_put_into_it() {
        let mut batch = Batch::default();
        batch.put(b"a", b"one");
        batch.put(b"", b"");
        batch.put(b"ccc", b"3");
        let entries: Vec<_> = batch.iter().collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"one"), (b"", b""), (b"ccc", b"3")];
        assert_eq!(entries, expected);
        batch.clear();
        assert_eq!((batch.len(), batch.iter().count()), (0, 0));
    }
}
