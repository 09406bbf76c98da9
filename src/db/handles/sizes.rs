//! Estimates of the number and size of entries.

use std::sync::Arc;

use super::keyspace::Keyspace;
use super::store::Db;
use crate::db::state::keyspace::tree::View;
use crate::error::Result;
use crate::snapshot_read::{KeyBounds, KeyRange};
use crate::version::TableHandle;

impl Db {
    /// Estimates the entries of the default keyspace; see [`Keyspace::approximate_len`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("a", "1")?;
    /// assert_eq!(db.approximate_len(), 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "estimate_num_keys")]
    #[must_use]
    pub fn approximate_len(&self) -> u64 {
        self.default_keyspace().approximate_len()
    }

    /// Estimates the size of a range in the tables of the default keyspace; see [`Keyspace::approximate_size`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("a", "1")?;
    /// db.flush()?;
    /// assert!(db.approximate_size("a".."m")? > 0);
    /// assert_eq!(db.approximate_size("m"..)?, 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Keyspace::approximate_size`].
    pub fn approximate_size(&self, range: impl KeyBounds) -> Result<u64> {
        self.default_keyspace().approximate_size(range)
    }
}

impl Keyspace {
    /// Estimates the number of entries. O(tables), no I/O. Exact if no key was written twice or deleted. Otherwise,
    /// until a compaction, a rewritten key counts once for each table and memtable entry with it, and a delete
    /// of an absent key counts −1. Returns 0 for a dropped keyspace.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.open_keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// users.delete("ada")?;
    /// assert_eq!(users.approximate_len(), 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "estimate_num_keys")]
    #[must_use]
    pub fn approximate_len(&self) -> u64 {
        let view = self.tree.view_ref();
        let in_memory = view.memtables().map(|of| (of.memtable.len(), of.memtable.tombstones()));
        let in_tables = view.version.all_tables().map(|(_, table)| (table.meta.keys, table.meta.tombstones));
        // Counts in tables are not verified, so additions saturate.
        let add = |(keys, tombstones): (u64, u64), (more, deleted): (u64, u64)| {
            (keys.saturating_add(more), tombstones.saturating_add(deleted))
        };
        let (keys, tombstones) = in_memory.chain(in_tables).fold((0, 0), add);
        // A tombstone counts as an entry and hides another one.
        keys.saturating_sub(tombstones.saturating_mul(2))
    }

    /// Estimates the bytes of a range in table files, including filters, indexes, older versions and tombstones, but
    /// not memtables. O(tables of the range). Reads index blocks of partly covered tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.open_keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// users.flush()?;
    /// assert!(users.approximate_size(..)? > 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if an index cannot be read;
    /// [`KeyspaceDropped`](crate::Error::KeyspaceDropped), [`Closed`](crate::Error::Closed).
    #[doc(alias = "get_approximate_sizes")]
    #[doc(alias = "disk_space")]
    pub fn approximate_size(&self, range: impl KeyBounds) -> Result<u64> {
        let view = self.tree.view();
        self.owner.engine().check_readable(&self.tree)?;
        size(&view, &KeyRange::new(&range))
    }
}

fn size(view: &View, range: &KeyRange) -> Result<u64> {
    let mut sum = 0u64;
    if range.is_empty() {
        return Ok(sum);
    }
    for (_, run) in view.version.all_runs() {
        let part = run.between(|key| range.starts_after(key), |key| range.ends_before(key));
        for table in &run.tables[part] {
            sum = sum.saturating_add(size_in(table, range)?);
        }
    }
    Ok(sum)
}

fn size_in(table: &Arc<TableHandle>, range: &KeyRange) -> Result<u64> {
    let meta = &table.meta;
    let first = range.first().filter(|_| range.starts_after(&meta.smallest));
    let beyond = range.beyond().filter(|_| range.ends_before(&meta.largest));
    if first.is_none() && beyond.is_none() {
        return Ok(meta.len);
    }
    let open = table.open()?;
    let before = first.map_or(Ok(0), |key| open.approximate_offset(&key))?;
    let end = beyond.map_or(Ok(meta.len), |key| open.approximate_offset(&key))?;
    Ok(end.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};
    use crate::table::Compression;

    #[test]
    fn the_estimated_length_is_exact_until_keys_are_written_twice() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        assert_eq!(db.approximate_len(), 0);
        for round in 0..4u32 {
            (0..1000u32).for_each(|key| db.put((round * 1000 + key).to_be_bytes(), "v").unwrap());
            assert_eq!(db.approximate_len(), u64::from(round + 1) * 1000);
            if round > 0 {
                db.flush().unwrap();
            }
        }
        (0..500u32).for_each(|key| db.delete(key.to_be_bytes()).unwrap());
        assert_eq!(db.approximate_len(), 3500);
        db.flush().unwrap();
        assert_eq!(db.approximate_len(), 3500);
        // These keys count twice until a compaction.
        (1000..1100u32).for_each(|key| db.put(key.to_be_bytes(), "w").unwrap());
        assert_eq!(db.approximate_len(), 3600);
        db.compact().unwrap();
        assert_eq!((db.approximate_len(), db.len().unwrap()), (3500, 3500));
        db.delete("absent").unwrap();
        assert!(db.approximate_len() < 3500);
    }

    #[test]
    fn the_estimated_sizes_of_parts_add_up_and_follow_their_share_of_the_data() {
        let plain = KeyspaceOptions::new().compression(Compression::None).table_bytes(64 << 10);
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.default_keyspace(plain).open("/db").unwrap();
        let keys = 10_000u32;
        (0..keys).for_each(|key| db.put(key.to_be_bytes(), [1; 100]).unwrap());
        assert_eq!(db.approximate_size(..).unwrap(), 0, "nothing is in tables");
        db.compact().unwrap();
        let reads = db.stats().data_block_reads;
        let whole = db.approximate_size(..).unwrap();
        assert_eq!(whole, db.stats().keyspaces[0].total().bytes);
        let size = |from: u32, to: u32| db.approximate_size(from.to_be_bytes()..to.to_be_bytes()).unwrap();
        for parts in [1, 3, 7, 50] {
            let at = |part: u32| keys / parts * part;
            let sizes: Vec<_> = (0..parts).map(|part| size(at(part), at(part + 1))).collect();
            let rest = size(at(parts), keys);
            assert_eq!(sizes.iter().sum::<u64>() + rest, whole, "{parts} parts");
            let share = whole / u64::from(parts);
            // Tolerates a few non-data blocks.
            let is_near = |size: &u64| size.abs_diff(share) < 24 << 10;
            assert!(sizes.iter().all(is_near), "{parts} parts of about {share}: {sizes:?}");
        }
        assert_eq!((size(keys, u32::MAX), size(5, 5), size(9, 3)), (0, 0, 0));
        assert_eq!(db.stats().data_block_reads, reads, "no data is read");
        let users = db.open_keyspace("users").unwrap();
        db.drop_keyspace("users").unwrap();
        assert!(users.approximate_size(..).is_err());
    }
}
