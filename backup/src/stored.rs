//! A file of the repository that is read, and checked on the way.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sievedb::fs::ReadFile;

use crate::content::{PART_BYTES, Sums};
use crate::error::{Error, Result};
use crate::index::IndexedFile;
use crate::repository::{Repository, Stored};

/// A damaged file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedFile {
    /// The file in the repository; the path that it should have if it is missing.
    pub file: PathBuf,
    /// Its name in the store.
    pub name: String,
    /// Where the damage begins: the first byte that is missing, or of the part of 1 MiB whose checksum is wrong.
    pub offset: u64,
    /// The expected and the found value.
    pub detail: String,
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, name, offset, detail } = self;
        write!(f, "{} ({name} in the store) is damaged from offset {offset} on: {detail}", file.display())
    }
}

impl From<DamagedFile> for Error {
    fn from(damaged: DamagedFile) -> Self {
        let DamagedFile { file, name, offset, detail } = damaged;
        Self::Damaged { file, offset, detail: format!("{detail}; it is {name} in the store") }
    }
}

impl Repository {
    /// Reads a file of a backup, and passes each part to `take`, damaged ones too; bytes that the system cannot read are
    /// zeros. Returns the first damage. A file that is missing is damage, and nothing is passed.
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
            // Found unused, or used again, since the listing.
            && let Some(moved) = self.stored()?.path(indexed.content)
        {
            path = moved.to_path_buf();
            opened = self.fs.open(&path);
        }
        let damaged = |offset, detail| {
            let (file, name) = (path.clone(), indexed.identity.name.clone());
            Some(DamagedFile { file, name, offset, detail })
        };
        match opened.and_then(|file| file.len().map(|len| (file, len))) {
            Ok((file, len)) => {
                let found = read_parts(&*file, len, indexed, &mut take)?;
                Ok(found.and_then(|(offset, detail)| damaged(offset, detail)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(damaged(0, "it is missing".into())),
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }
}

/// Returns the offset and the description of the first damage.
fn read_parts(
    file: &dyn ReadFile,
    len: u64,
    indexed: &IndexedFile,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Option<(u64, String)>> {
    let (mut sums, mut first, mut at) = (Sums::new(), None, 0);
    let mut parts = indexed.parts.iter();
    while at < len.min(indexed.content.len) {
        let part_len = PART_BYTES.min(len.min(indexed.content.len) - at) as usize;
        let part = file.read_to_vec(part_len, at).unwrap_or_else(|error| {
            first.get_or_insert((at, format!("cannot read it: {error}")));
            vec![0; part_len]
        });
        let (found, expected) = (sums.add(&part), parts.next().copied().unwrap_or_default());
        // A file that is cut ends in the middle of a part.
        if found != expected && (len >= indexed.content.len || part.len() as u64 == PART_BYTES) {
            first.get_or_insert((at, format!("its checksum is {found:08x} instead of {expected:08x}")));
        }
        take(&part)?;
        at += part.len() as u64;
    }
    let (content, _) = sums.finish();
    if len != indexed.content.len {
        let detail = format!("it has {len} bytes instead of {}", indexed.content.len);
        first.get_or_insert((len.min(indexed.content.len), detail));
    } else if content != indexed.content {
        first.get_or_insert((0, format!("its content is {content} instead of {}", indexed.content)));
    }
    Ok(first)
}

/// Writes a file that is durable when it is finished.
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
