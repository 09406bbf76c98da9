pub(crate) mod fjall;
pub(crate) mod nothing;
pub(crate) mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
pub(crate) mod sievedb;
pub(crate) mod surrealkv;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::Result;
    use crate::engine::{Adding, Batch, Engine, Seen, Settings, Writes};
    use crate::keys::{ABSENT, KeySet, fill_value, value_word};
    use crate::names::{EngineName, with_engine};

    const KEYS: u32 = 600;

    fn key(number: u32) -> Vec<u8> {
        let mut key = Vec::new();
        KeySet::Paths.write(number, &mut key);
        key
    }

    async fn change<E: Engine>(engine: Arc<E>) -> Result<()> {
        let (mut value, mut batch) = (vec![0; 100], Batch::default());
        for number in 0..KEYS {
            fill_value(number, &mut value);
            match number % 3 {
                0 => batch.put(&key(number), &value),
                1 => engine.put(&key(number), &value, false).await?,
                _ => engine.put(&key(number), &value, number == 2).await?,
            }
        }
        engine.write(&batch).await?;
        for number in (0..KEYS).step_by(7) {
            engine.delete(&key(number)).await?;
        }
        Ok(())
    }

    const CLIENTS: usize = 4;
    const ADDITIONS: usize = 50;

    fn settings(writes: Writes) -> Settings {
        Settings {
            cache_bytes: 8 << 20,
            memtable_bytes: 8 << 20,
            table_bytes: 8 << 20,
            level_base_bytes: 32 << 20,
            writes,
        }
    }

    fn use_it<E: Engine>(dir: &Path) -> Result<[Seen; 3]> {
        let mut engine = E::open(dir, &settings(Writes::Only))?;
        let shared = Arc::new(engine);
        shared.run_clients(vec![change(shared.clone())])?;
        engine = Arc::into_inner(shared).ok_or("a client still holds the engine")?;
        engine.flush()?;
        engine.settle()?;
        let before = engine.scan(&[], usize::MAX)?;
        engine.compact()?;
        engine.close()?;

        let engine = E::open(dir, &settings(Writes::None))?;
        for number in 0..KEYS {
            let expected = (number % 7 > 0).then(|| value_word(number));
            assert_eq!(engine.get(&key(number))?, expected, "number {number}");
            assert_eq!(engine.get(&key(ABSENT + number))?, None);
        }
        let keys: Vec<_> = (0..70).chain(ABSENT..ABSENT + 30).map(key).collect();
        assert_eq!(engine.count_present(&keys)?, 60);
        let seen = [before, engine.scan(&key(50), 40)?, engine.scan_back(usize::MAX)?];
        engine.close()?;
        Ok(seen)
    }

    async fn add<E: Engine>(engine: Arc<E>) -> Result<()> {
        let keys = [0, 1, 2].map(key);
        for _ in 0..ADDITIONS {
            engine.add(&keys, Adding { yields: true, synced: false }).await?;
        }
        Ok(())
    }

    fn add_together<E: Engine>(dir: &Path) -> Result<u64> {
        let engine = Arc::new(E::open(dir, &settings(Writes::Some))?);
        engine.run_clients(vec![change(engine.clone())])?;
        let mut value = [0; 100];
        fill_value(0, &mut value);
        engine.run_clients(vec![put(engine.clone(), key(0), value)])?;
        let before = engine.scan(&[], usize::MAX)?;
        engine.run_clients((0..CLIENTS).map(|_| add(engine.clone())).collect())?;
        let after = engine.scan(&[], usize::MAX)?;
        assert_eq!(before.entries, after.entries);
        Arc::into_inner(engine).ok_or("a client still holds the engine")?.close()?;
        Ok(after.sum.wrapping_sub(before.sum))
    }

    async fn put<E: Engine>(engine: Arc<E>, key: Vec<u8>, value: [u8; 100]) -> Result<()> {
        engine.put(&key, &value, false).await
    }

    #[test]
    fn no_engine_loses_an_addition_among_threads() {
        for name in [EngineName::Sievedb, EngineName::Fjall, EngineName::Surrealkv, EngineName::Redb] {
            let dir = tempfile::tempdir().unwrap();
            let grown: Result<u64> = with_engine!(name, add_together(dir.path()));
            let expected = (CLIENTS * ADDITIONS * 3) as u64;
            assert_eq!(grown.unwrap_or_else(|error| panic!("{name:?}: {error}")), expected, "{name:?}");
        }
    }

    #[test]
    fn all_engines_give_the_same_answers() {
        let mut names = vec![EngineName::Sievedb, EngineName::Fjall, EngineName::FjallHashed];
        names.extend([EngineName::FjallPartitioned, EngineName::Surrealkv, EngineName::Redb]);
        if EngineName::Rocksdb.is_built() {
            names.extend([EngineName::Rocksdb, EngineName::RocksdbHashed]);
            names.extend([EngineName::RocksdbCached, EngineName::RocksdbPartitioned]);
        }
        let seen: Vec<_> = names
            .iter()
            .map(|&name| {
                let dir = tempfile::tempdir().unwrap();
                let seen: Result<[Seen; 3]> = with_engine!(name, use_it(dir.path()));
                seen.unwrap_or_else(|error| panic!("{name:?}: {error}"))
            })
            .collect();
        let present = u64::from(KEYS) - u64::from(KEYS).div_ceil(7);
        assert_eq!(seen[0].map(|seen| seen.entries), [present, 40, present]);
        assert_eq!(seen[0][0], seen[0][2], "the same entries in either direction");
        for (name, seen_by_it) in names.iter().zip(&seen) {
            assert_eq!(seen_by_it, &seen[0], "{name:?}");
        }
    }
}
