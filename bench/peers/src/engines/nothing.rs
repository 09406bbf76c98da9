//! An engine without work, to measure the cost of the loop.

use std::hint::black_box;
use std::path::Path;

use crate::Result;
use crate::engine::{Adding, Batch, Engine, Seen, Settings, word};

#[derive(Debug)]
pub(crate) struct Nothing;

impl Engine for Nothing {
    const ANSWERS: bool = false;

    fn open(_: &Path, _: &Settings) -> Result<Self> {
        Ok(Self)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(Some(word(black_box(key))))
    }

    fn count_present(&self, keys: &[Vec<u8>]) -> Result<usize> {
        Ok(black_box(keys).len())
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen> {
        black_box(from);
        Ok(Seen { entries: entries as u64, sum: 0 })
    }

    fn scan_back(&self, entries: usize) -> Result<Seen> {
        Ok(Seen { entries: entries as u64, sum: 0 })
    }

    async fn put(&self, key: &[u8], value: &[u8], _: bool) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    async fn write(&self, batch: &Batch) -> Result<()> {
        black_box(batch);
        Ok(())
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        black_box(key);
        Ok(())
    }

    async fn add(&self, keys: &[Vec<u8>], how: Adding) -> Result<u64> {
        how.between();
        black_box(keys);
        Ok(0)
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
