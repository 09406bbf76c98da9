//! A file of lines, each written exactly once across crashes.
//!
//! For each batch:
//!
//! 1. The lines are appended to the file, and the file is synced.
//! 2. Their keys and the file's new length are written to the store as one synced batch.
//!
//! A file beyond its recorded length has uncommitted lines: the next open removes them, and they are new again. Only the
//! journal itself may be shortened, so the record has a hash of the last lines and the path; a nonempty file that matches
//! neither is refused. The record also has the id of the store. A restored copy refuses the file, because lines beyond the
//! recorded length may be committed in the original.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sievedb::hash::key_hash;

use crate::failure::{Failure, Result};
use crate::store::check_parent;
use crate::units;

pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    record: Record,
    is_created: bool,
}

/// The end of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    length: u64,
    /// Length and hash of the last appended lines.
    tail_bytes: u64,
    tail_hash: u64,
    path: String,
    store_id: String,
}

impl Record {
    fn new(path: &Path, store_id: &str) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            length: 0,
            tail_bytes: 0,
            tail_hash: hash(b""),
            path: absolute.display().to_string(),
            store_id: store_id.into(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let Self { length, tail_bytes, tail_hash, path, store_id } = self;
        let record = json!({
            "length": length, "tail_bytes": tail_bytes, "tail_hash": tail_hash, "path": path, "store_id": store_id
        });
        record.to_string().into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let fields: Value = serde_json::from_slice(bytes).ok()?;
        let record = Self {
            length: fields["length"].as_u64()?,
            tail_bytes: fields["tail_bytes"].as_u64()?,
            tail_hash: fields["tail_hash"].as_u64()?,
            path: fields["path"].as_str()?.to_owned(),
            store_id: fields["store_id"].as_str()?.to_owned(),
        };
        (record.tail_bytes <= record.length).then_some(record)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    key_hash(0, bytes)
}

impl Journal {
    /// Returns the journal and the number of bytes that it removed from the file.
    pub(crate) fn open(path: &Path, recorded: Option<&[u8]>, store_id: &str) -> Result<(Self, u64)> {
        let mut record = Record::new(path, store_id);
        let here = std::mem::take(&mut record.path);
        let is_known = recorded.is_some();
        if let Some(recorded) = recorded {
            let broken = || Failure::Refused("the store's record of its journal makes no sense".into());
            record = Record::decode(recorded).ok_or_else(broken)?;
        }
        let cannot = |error| Failure::io(format!("open the journal {}", path.display()), error);
        let mut present = open_if_present(path).map_err(cannot)?;
        let found = match &present {
            Some(file) => file.metadata().map_err(cannot)?.len(),
            None => 0,
        };
        let is_same = found == 0 && record.length == 0
            || found >= record.length
                && record.tail_bytes > 0
                && present.as_mut().map_or(Ok(false), |file| has_tail(file, &record)).map_err(cannot)?
            || is_known && record.length == 0 && record.path == here;
        if !is_same {
            return Err(refused(path, present.is_some().then_some(found), is_known.then_some(&record)));
        }
        let uncommitted = found.saturating_sub(record.length);
        if uncommitted > 0 && record.store_id != store_id {
            return Err(ahead_of_copy(path, uncommitted));
        }
        (record.path, record.store_id) = (here, store_id.into());
        let is_created = present.is_none();
        let mut file = match present {
            Some(file) => file,
            None => OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(cannot)?,
        };
        if uncommitted > 0 {
            file.set_len(record.length).and_then(|()| file.sync_all()).map_err(cannot)?;
        }
        file.seek(SeekFrom::End(0)).map_err(cannot)?;
        let journal = Self { file, path: path.to_owned(), record, is_created };
        if let Err(error) = sync_folder(path) {
            journal.remove_if_created();
            return Err(cannot(error));
        }
        Ok((journal, uncommitted))
    }

    pub(crate) fn check_new(path: &Path) -> Result<()> {
        let cannot = |error| Failure::io(format!("open the journal {}", path.display()), error);
        let Some(file) = open_if_present(path).map_err(cannot)? else { return check_parent(path) };
        match file.metadata().map_err(cannot)?.len() {
            0 => Ok(()),
            found => Err(refused(path, Some(found), None)),
        }
    }

    pub(crate) fn remove_if_created(&self) {
        if self.is_created && self.record.length == 0 {
            // The earlier failure is reported.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    pub(crate) fn append(&mut self, lines: &[u8]) -> Result<()> {
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        written
            .map_err(|error| Failure::io(format!("write to the journal {}", self.path.display()), error))?;
        self.record.length += lines.len() as u64;
        self.record.tail_bytes = lines.len() as u64;
        self.record.tail_hash = hash(lines);
        Ok(())
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        self.record.encode()
    }

    pub(crate) fn end(&self) -> Record {
        self.record.clone()
    }

    /// Removes the lines after an earlier end. The store must have no record of them.
    pub(crate) fn roll_back(&mut self, end: &Record) -> Result<()> {
        if self.record == *end {
            return Ok(());
        }
        let cut = self.file.set_len(end.length).and_then(|()| self.file.seek(SeekFrom::End(0)));
        cut.map_err(|error| Failure::io(format!("shorten the journal {}", self.path.display()), error))?;
        self.record = end.clone();
        Ok(())
    }
}

fn has_tail(file: &mut File, record: &Record) -> io::Result<bool> {
    file.seek(SeekFrom::Start(record.length - record.tail_bytes))?;
    let mut tail = Vec::new();
    file.take(record.tail_bytes).read_to_end(&mut tail)?;
    Ok(hash(&tail) == record.tail_hash)
}

pub(crate) fn describe(recorded: &[u8]) -> Option<String> {
    let record = Record::decode(recorded)?;
    let bytes = units::counted(record.length, "byte", "bytes");
    Some(format!("{}, of which {bytes} are committed", record.path))
}

fn open_if_present(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_at(path: &Path, record: &Record) -> bool {
    std::path::absolute(path).is_ok_and(|absolute| absolute.display().to_string() == record.path)
}

fn refused(path: &Path, found: Option<u64>, record: Option<&Record>) -> Failure {
    let has = match found {
        Some(found) => format!("{} has {}", path.display(), units::counted(found, "byte", "bytes")),
        None => format!("{} does not exist", path.display()),
    };
    Failure::Refused(match record {
        None => format!("{has}, but this is a new journal: it begins with an empty file"),
        Some(record) if found.is_some() && is_at(path, record) => format!(
            "{has}, but not those that this store has committed ({}): the file was edited, truncated or replaced; restore it, or \
             move it away and use --new-journal",
            units::counted(record.length, "byte", "bytes")
        ),
        Some(record) => format!(
            "{has}, and is not the journal of this store, of which {} are committed; that was {}; \
             --new-journal begins another one",
            units::counted(record.length, "byte", "bytes"),
            record.path
        ),
    })
}

fn ahead_of_copy(path: &Path, uncommitted: u64) -> Failure {
    Failure::Refused(format!(
        "{} has {} more than this store, which is a restored copy or a checkpoint; its original may have committed them; \
         --new-journal begins another file",
        path.display(),
        units::counted(uncommitted, "byte", "bytes")
    ))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match File::open(folder.unwrap_or(Path::new(".")))?.sync_all() {
            // This file system does not sync directories.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            synced => synced?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, recorded: Option<&[u8]>) -> Result<Journal> {
        Journal::open(path, recorded, "id").map(|(journal, _)| journal)
    }

    #[test]
    fn a_copy_of_the_store_refuses_a_journal_with_more_lines_and_continues_an_equal_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut journal = open(&path, None).unwrap();
        journal.append(b"a\n").unwrap();
        let record = journal.record();
        journal.append(b"b\nc\n").unwrap();
        let refused = Journal::open(&path, Some(&record), "copy").map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("has 4 bytes more than this store"), "{refused}");
        assert_eq!(content(&path), "a\nb\nc\n");
        let (mut journal, removed) = Journal::open(&path, Some(&journal.record()), "copy").unwrap();
        journal.append(b"d\n").unwrap();
        assert_eq!((content(&path), removed), ("a\nb\nc\nd\n".to_owned(), 0));
        assert!(Journal::open(&path, Some(&record), "id").is_ok_and(|(_, removed)| removed == 6));
    }

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_was_not_recorded_is_cut_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut journal = open(&path, None).unwrap();
        let mut records = vec![journal.record()];
        for lines in ["a\n", "b\nc\n", "d\n"] {
            journal.append(lines.as_bytes()).unwrap();
            records.push(journal.record());
        }
        drop(journal);
        for (record, kept) in records.iter().zip(["", "a\n", "a\nb\nc\n", "a\nb\nc\nd\n"]).rev() {
            let mut journal = open(&path, Some(record)).unwrap();
            assert_eq!((content(&path), journal.record()), (kept.to_owned(), record.clone()));
            journal.append(b"never recorded").unwrap();
        }
    }

    #[test]
    fn lines_that_are_rolled_back_are_replaced_by_the_next_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut journal = open(&path, None).unwrap();
        journal.append(b"a\n").unwrap();
        let (end, before) = (journal.end(), journal.record());
        journal.append(b"b\nc\n").unwrap();
        journal.roll_back(&end).unwrap();
        assert_eq!((content(&path), journal.record()), ("a\n".to_owned(), before));
        journal.append(b"c\n").unwrap();
        assert_eq!(content(&path), "a\nc\n");
        let record = journal.record();
        drop(journal);
        assert_eq!(open(&path, Some(&record)).unwrap().record(), record);
    }

    #[test]
    fn a_file_that_is_not_the_journal_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("out"), folder.path().join("other"));
        std::fs::write(&other, "precious\nlines\n").unwrap();
        let refused = |path: &Path, record: Option<&[u8]>| {
            let before = std::fs::read(path).unwrap();
            assert!(matches!(open(path, record), Err(Failure::Refused(_))), "{}", path.display());
            assert_eq!(std::fs::read(path).unwrap(), before);
        };
        refused(&other, None);
        let mut journal = open(&path, None).unwrap();
        refused(&other, Some(&journal.record()));
        journal.append(b"a line\n").unwrap();
        let record = journal.record();
        refused(&other, Some(&record));
        refused(&path, Some(b"no record"));
        std::fs::rename(&path, &other).unwrap();
        assert!(open(&other, Some(&record)).is_ok());
        std::fs::write(&other, "a li").unwrap();
        refused(&other, Some(&record));
        std::fs::write(&other, "").unwrap();
        refused(&other, Some(&record));
    }

    #[test]
    fn a_journal_that_is_missing_is_refused_without_creating_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("out"), folder.path().join("out.1"));
        let mut journal = open(&path, None).unwrap();
        journal.append(b"a line\n").unwrap();
        let record = journal.record();
        std::fs::rename(&path, &rotated).unwrap();
        let message = open(&path, Some(&record)).err().unwrap().to_string();
        assert!(message.contains("out does not exist, and is not the journal of this store"), "{message}");
        assert!(message.ends_with("; --new-journal begins another one"), "{message}");
        assert!(!path.exists());
        std::fs::write(&path, "a lint\n").unwrap();
        let message = open(&path, Some(&record)).err().unwrap().to_string();
        assert!(
            message.contains("out has 7 bytes, but not those that this store has committed (7 bytes)"),
            "{message}"
        );
        std::fs::remove_file(&path).unwrap();
        Journal::check_new(&path).unwrap();
        assert!(Journal::check_new(&rotated).is_err() && !path.exists());
        open(&path, None).unwrap().remove_if_created();
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        open(&path, None).unwrap().remove_if_created();
        assert!(path.exists(), "it was there before");
        assert_eq!(describe(&record).unwrap(), format!("{}, of which 7 bytes are committed", path.display()));
    }
}
