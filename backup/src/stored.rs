//! Reads and checks a file of the repository.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sievedb::FileKind;
use sievedb::fs::ReadFile;
use sievedb::inspect::{self, Detail, Event, FileDamage, Stop, View};

use crate::content::{PART_BYTES, Sums};
use crate::error::{Error, Result, from_offset};
use crate::index::IndexedFile;
use crate::repository::{Repository, Stored};

/// A damaged file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedFile {
    /// Path in the repository; the expected path if the file is missing.
    pub file: PathBuf,
    /// Name in the store.
    pub name: String,
    /// The first missing or surplus byte, or the start of the first damaged part of 1 MiB. `None` if the damage may be anywhere
    /// in the file, or the file is missing.
    pub offset: Option<u64>,
    /// The expected and the found value.
    pub detail: String,
    pub(crate) cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Bytes or the length differ from the index.
    Changed,
    /// The file is missing, or a read failed.
    Unread,
    /// The file is as it was copied.
    Store,
}

impl DamagedFile {
    /// Whether the store's file was already damaged when it was copied.
    #[must_use]
    pub fn was_copied_damaged(&self) -> bool {
        self.cause == Cause::Store
    }
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, name, offset, detail, .. } = self;
        write!(f, "{} ({name} in the store) is damaged{}: {detail}", file.display(), from_offset(*offset))
    }
}

impl From<DamagedFile> for Error {
    fn from(damaged: DamagedFile) -> Self {
        let DamagedFile { file, name, offset, detail, .. } = damaged;
        Self::Damaged { file, offset, detail: format!("{detail}; it is {name} in the store") }
    }
}

impl Repository {
    /// Passes each part to `take`, with zeros for unreadable bytes. Returns the first damage; a missing file counts as
    /// damage.
    pub(crate) fn read_stored(
        &self,
        stored: &Stored,
        indexed: &IndexedFile,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<DamagedFile>> {
        let (path, opened) = self.open_stored(stored, indexed)?;
        let damaged = |(offset, detail), cause| {
            let (file, name) = (path.clone(), indexed.identity.name.clone());
            DamagedFile { file, name, offset, detail, cause }
        };
        let Some((file, len)) = opened else {
            return Ok(Some(damaged((None, "it is missing".into()), Cause::Unread)));
        };
        let (first, is_wrong) = read_parts(&*file, len, indexed, &mut take)?;
        let cause = if is_wrong { Cause::Changed } else { Cause::Unread };
        Ok(first.map(|first| damaged(first, cause)))
    }

    /// Reads a table or a filter again, and compares it with its own checksums. Skips a table's filters unless it
    /// `uses_filters`.
    pub(crate) fn check_as_copied(
        &self,
        stored: &Stored,
        indexed: &IndexedFile,
        uses_filters: bool,
    ) -> Result<Option<DamagedFile>> {
        let (path, Some((opened, _))) = self.open_stored(stored, indexed)? else { return Ok(None) };
        let (offset, detail, cause) = match own_damage(&*opened, uses_filters) {
            Ok(Some(damage)) => {
                let store = "the store had this damage when the file was copied";
                let detail = format!("{}: {}; {store}", damage.what, damage.detail);
                (Some(damage.offset), detail, Cause::Store)
            }
            Ok(None) => return Ok(None),
            Err(stop) => (None, stop.to_string(), Cause::Unread),
        };
        let name = indexed.identity.name.clone();
        Ok(Some(DamagedFile { file: path, name, offset, detail, cause }))
    }

    /// The file's path and, unless it is missing, the file with its length.
    fn open_stored(&self, stored: &Stored, indexed: &IndexedFile) -> Result<(PathBuf, Option<Opened>)> {
        let expected = self.file_path(indexed.content);
        let mut path = stored.path(indexed.content).unwrap_or(&expected).to_path_buf();
        let mut opened = self.fs.open(&path);
        if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
            // The file was moved since the listing.
            && let Some(moved) = self.stored()?.path(indexed.content)
        {
            path = moved.to_path_buf();
            opened = self.fs.open(&path);
        }
        match opened.and_then(|file| file.len().map(|len| (file, len))) {
            Ok(opened) => Ok((path, Some(opened))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((path, None)),
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }
}

/// The first violation of the format. Parts of a newer version are none, because they may use other checksums.
fn own_damage(file: &dyn ReadFile, uses_filters: bool) -> std::result::Result<Option<FileDamage>, Stop> {
    let (view, mut first) = (View::new().detail(Detail::Shape).skips_filters(!uses_filters), None);
    inspect::describe(file, &view, &mut |event: &Event<'_>| {
        if let Event::Damage(damage) = event
            && !damage.newer
        {
            first.get_or_insert_with(|| damage.clone());
        }
        Ok(())
    })?;
    Ok(first)
}

type Opened = (Arc<dyn ReadFile>, u64);

/// Whether a file of this kind is complete and has checksums of its own.
pub(crate) fn has_checksums(kind: FileKind) -> bool {
    matches!(kind, FileKind::Table | FileKind::Filter)
}

/// The offset and the description of damage.
type Found = (Option<u64>, String);

/// Returns the first damage, and whether bytes or the length are wrong.
fn read_parts(
    file: &dyn ReadFile,
    len: u64,
    indexed: &IndexedFile,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<(Option<Found>, bool)> {
    let (mut sums, mut first, mut at) = (Sums::new(), None, 0);
    let (mut is_unread, mut is_wrong) = (false, len != indexed.content.len);
    let mut parts = indexed.parts.iter();
    let is_long = indexed.content.parts() > 1;
    let of = if is_long { "the checksum of that part of 1 MiB" } else { "its checksum" };
    while at < len.min(indexed.content.len) {
        let part_len = PART_BYTES.min(len.min(indexed.content.len) - at) as usize;
        let read = file.read_to_vec(part_len, at);
        let is_read = read.is_ok();
        is_unread |= !is_read;
        let part = read.unwrap_or_else(|error| {
            first.get_or_insert((is_long.then_some(at), format!("cannot read it: {error}")));
            vec![0; part_len]
        });
        let (found, expected) = (sums.add(&part), parts.next().copied().unwrap_or_default());
        // The short last part of a cut file is reported as a wrong length.
        if found != expected && (len >= indexed.content.len || part.len() as u64 == PART_BYTES) {
            is_wrong |= is_read;
            let detail = format!("{of} is {found:08x} instead of {expected:08x}");
            first.get_or_insert((is_long.then_some(at), detail));
        }
        take(&part)?;
        at += part.len() as u64;
    }
    let (content, _) = sums.finish();
    if len != indexed.content.len {
        let detail = format!("it has {len} bytes instead of {}", indexed.content.len);
        first.get_or_insert((Some(len.min(indexed.content.len)), detail));
    } else if content != indexed.content {
        is_wrong |= !is_unread;
        first.get_or_insert((None, format!("its content is {content} instead of {}", indexed.content)));
    }
    Ok((first, is_wrong))
}

/// Creates a file and returns its writer. `None` ends the file and syncs it.
pub(crate) fn create(
    repository: &Repository,
    path: &Path,
) -> Result<impl FnMut(Option<&[u8]>) -> Result<()> + use<>> {
    let file = repository.fs.create(path).map_err(|error| Error::io("create", path, error))?;
    let path = path.to_path_buf();
    Ok(move |part: Option<&[u8]>| match part {
        Some(part) => file.append(part).map_err(|error| Error::io("append to", &path, error)),
        None => file.sync().map_err(|error| Error::io("sync", &path, error)),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use sievedb::fs::MemFs;
    use sievedb::{Compression, KeyspaceOptions, Options};

    use super::*;

    /// Each read of the part at this offset fails.
    #[derive(Debug)]
    struct Failing(Vec<u8>, u64);

    impl ReadFile for Failing {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            if offset == self.1 {
                return Err(io::Error::other("once"));
            }
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }
    }

    fn indexed(bytes: &[u8]) -> IndexedFile {
        let mut sums = Sums::new();
        bytes.chunks(PART_BYTES as usize).for_each(|part| _ = sums.add(part));
        let (content, parts) = sums.finish();
        let identity = crate::index::tests::example().files.remove(0).identity;
        IndexedFile { identity, content, parts }
    }

    #[test]
    fn a_change_that_the_checksums_of_the_parts_do_not_show_is_found_by_that_of_the_file() {
        let mut bytes = vec![7; 3 * PART_BYTES as usize];
        let indexed = indexed(&bytes);
        // A multiple of the generator of CRC-32.
        let multiple = (1 | 0xedb8_8320_u64 << 1).to_le_bytes();
        bytes[100..].iter_mut().zip(multiple).for_each(|(byte, change)| *byte ^= change);
        let len = bytes.len() as u64;
        let (first, is_wrong) =
            read_parts(&Failing(bytes, u64::MAX), len, &indexed, &mut |_| Ok(())).unwrap();
        let (offset, detail) = first.unwrap();
        assert!(offset.is_none() && is_wrong && detail.starts_with("its content is "), "{detail}");
    }

    /// The longest table of a small store, not compressed.
    fn table() -> Vec<u8> {
        let fs = MemFs::new();
        let options = KeyspaceOptions::new().compression(Compression::None);
        let db = Options::new().fs(Arc::new(fs.clone())).default_keyspace(options).open("/db").unwrap();
        (0..1000_u32).for_each(|n| db.put(n.to_be_bytes(), [7; 100]).unwrap());
        db.compact().unwrap();
        let files = fs.files(Path::new("/db")).into_iter().map(|(_, bytes)| bytes);
        files.filter(|bytes| bytes.get(8) == Some(&1)).max_by_key(Vec::len).unwrap()
    }

    #[test]
    fn damage_behind_a_block_of_a_newer_version_is_found() {
        const HEADER: usize = 64;
        const ENVELOPE: usize = 20;
        let mut bytes = table();
        let check = |bytes: &[u8]| own_damage(&Failing(bytes.to_vec(), u64::MAX), true).unwrap();
        assert_eq!(check(&bytes), None);
        let id: [u8; 16] = bytes[32..48].try_into().unwrap();
        let len = u32::from_le_bytes(bytes[HEADER + 4..][..4].try_into().unwrap()) as usize;
        let next = HEADER + ENVELOPE + len;
        bytes[HEADER + 1] = 99;
        let block = &bytes[HEADER..next];
        let sum = sievedb_filter::checksum::checksum(&id, HEADER as u64, &[&block[..12], &block[ENVELOPE..]]);
        bytes[HEADER + 12..][..8].copy_from_slice(&sum.to_le_bytes());
        let file = Failing(bytes.clone(), u64::MAX);
        let report = inspect::describe(&file, &View::new(), &mut |_: &Event<'_>| Ok(())).unwrap();
        assert!(report.first_damage.unwrap().newer);
        assert_eq!(check(&bytes), None);
        bytes[next + 100] ^= 1;
        let found = check(&bytes).unwrap();
        assert!((next..next + 100).contains(&(found.offset as usize)), "{found:?}");
    }

    #[test]
    fn a_failed_read_is_damage_but_only_bytes_that_were_read_are_wrong() {
        let bytes = vec![7; 3 * PART_BYTES as usize];
        let indexed = indexed(&bytes);
        let mut changed = bytes.clone();
        changed[2 * PART_BYTES as usize] = 8;
        for (bytes, is_wrong) in [(bytes, false), (changed, true)] {
            let len = bytes.len() as u64;
            let file = Failing(bytes, PART_BYTES);
            let (first, found) = read_parts(&file, len, &indexed, &mut |_| Ok(())).unwrap();
            assert_eq!((first.unwrap().0, found), (Some(PART_BYTES), is_wrong));
        }
    }
}
