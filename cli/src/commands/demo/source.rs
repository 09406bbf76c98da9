//! Records: the paths of the files under a directory, or the lines of a file. A walk follows no links and is bounded in keys and
//! bytes; unreadable directories are counted.

use std::path::{Path, PathBuf};

use sievedb::limits::KEY_BYTES_MAX;

use crate::failure::{Failure, Result};
use crate::line_format::{Content, LineFormat};
use crate::lines::Lines;
use crate::progress::Progress;
use crate::units;

const KEYS_MAX: usize = 2_000_000;

const BYTES_MAX: usize = 512 << 20;

/// Lines too long for a key are counted and skipped.
const LINE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) key: Box<[u8]>,
    pub(super) value: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) what: String,
    pub(super) records: Vec<Record>,
    pub(super) left_out: Option<String>,
    pub(super) bytes: usize,
}

impl Source {
    pub(super) fn read(from: Option<&Path>) -> Result<Self> {
        let from = from.map_or_else(default_directory, Path::to_path_buf);
        let mut source = if from.is_dir() { walk(&from) } else { lines(&from)? };
        source.records.sort_unstable();
        source.records.dedup_by(|next, first| next.key == first.key);
        source.bytes = source.records.iter().map(Record::bytes).sum();
        if source.records.is_empty() {
            return Err(Failure::Usage(format!(
                "there is nothing to load in {}: name a directory or a file with --from",
                from.display()
            )));
        }
        Ok(source)
    }

    fn has_room(&mut self) -> bool {
        if self.records.len() < KEYS_MAX && self.bytes < BYTES_MAX {
            return true;
        }
        self.left_out =
            Some(format!("stopped after {} keys", crate::units::count(self.records.len() as u64)));
        false
    }

    fn add(&mut self, key: &[u8], value: String) {
        let record = Record { key: key.into(), value: value.into_bytes().into() };
        self.bytes += record.bytes();
        self.records.push(record);
    }
}

impl Record {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

fn default_directory() -> PathBuf {
    let usr = PathBuf::from("/usr");
    match std::env::var_os("ProgramFiles") {
        _ if usr.is_dir() => usr,
        Some(programs) => programs.into(),
        None => ".".into(),
    }
}

fn lines(path: &Path) -> Result<Source> {
    let as_they_are = LineFormat { literal: true, ..LineFormat::default() };
    let mut lines = Lines::open(path, as_they_are, Content::Text(LINE_BYTES_MAX))?;
    let mut progress = Progress::of_bytes("reading lines", lines.bytes());
    let mut source = Source { what: format!("lines of {}", path.display()), ..Source::default() };
    let mut too_long = 0;
    while source.has_room() {
        let Some(line) = lines.next()? else { break };
        if line.len() > KEY_BYTES_MAX {
            too_long += 1;
            continue;
        }
        let line = line.to_vec();
        source.add(&line, format!("line {}", lines.number()));
        progress.at(lines.position());
    }
    if too_long > 0 && source.left_out.is_none() {
        source.left_out =
            Some(format!("{} too long for a key", crate::units::counted(too_long, "line", "lines")));
    }
    Ok(source)
}

fn walk(top: &Path) -> Source {
    let mut source = Source { what: format!("file paths under {}", top.display()), ..Source::default() };
    let mut progress = Progress::of_items("reading paths", None);
    let mut unread = 0;
    let mut directories = vec![top.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            unread += 1;
            continue;
        };
        for entry in entries {
            if !source.has_room() {
                return source;
            }
            let Ok(entry) = entry else {
                unread += 1;
                break;
            };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => add_file(&mut source, &entry),
                _ => {}
            }
        }
        progress.at(source.records.len() as u64);
    }
    if unread > 0 {
        let directories = crate::units::counted(unread, "directory", "directories");
        source.left_out = Some(format!("{directories} could not be read"));
    }
    source
}

fn add_file(source: &mut Source, entry: &std::fs::DirEntry) {
    let path = entry.path();
    let key = path.as_os_str().as_encoded_bytes();
    if let Ok(metadata) = entry.metadata()
        && key.len() <= KEY_BYTES_MAX
    {
        let modified = metadata.modified().map_or_else(|_| "?".into(), units::utc);
        source.add(key, format!("{} bytes, {modified}", metadata.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_and_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words");
        std::fs::write(&path, b"pear\napple\npear\n\xff\n").unwrap();
        let source = Source::read(Some(&path)).unwrap();
        let keys: Vec<&[u8]> = source.records.iter().map(|record| &*record.key).collect();
        assert_eq!(keys, [&b"apple"[..], b"pear", b"\xff"]);
        assert_eq!(&*source.records[1].value, b"line 1");
        assert_eq!(source.bytes, 5 + 4 + 1 + 3 * 6);
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(Source::read(Some(&path)), Err(Failure::Usage(_))));
    }

    #[cfg(unix)]
    #[test]
    fn a_walk_finds_every_file_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), b"12345").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("a/b/file"), dir.path().join("link")).unwrap();
        let source = Source::read(Some(dir.path())).unwrap();
        assert_eq!(source.records.len(), 1);
        assert!(source.records[0].key.ends_with(b"a/b/file"));
        assert!(source.records[0].value.starts_with(b"5 bytes, 20"));
        assert_eq!(source.left_out, None);
    }
}
