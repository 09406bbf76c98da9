//! Reads and checks a file of the repository.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sievedb::fs::ReadFile;

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
    /// Whether bytes or the length are wrong. Otherwise the file is missing, or a read failed.
    pub(crate) is_wrong: bool,
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
        let damaged = |(offset, detail), is_wrong| {
            let (file, name) = (path.clone(), indexed.identity.name.clone());
            DamagedFile { file, name, offset, detail, is_wrong }
        };
        match opened.and_then(|file| file.len().map(|len| (file, len))) {
            Ok((file, len)) => {
                let (first, is_wrong) = read_parts(&*file, len, indexed, &mut take)?;
                Ok(first.map(|first| damaged(first, is_wrong)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Some(damaged((None, "it is missing".into()), false)))
            }
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }
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
