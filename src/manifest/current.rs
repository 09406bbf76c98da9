//! `CURRENT`: the file that names the current manifest.
//!
//! ```text
//!  0  file header            64   kind CURRENT
//! 64  manifest number       u64
//! 72  manifest file id       16
//! 88  reserved              u32   0
//! 92  checksum              u32   CRC-32 of (file id, offset 64, bytes 64..92)
//! ```
//!
//! It is replaced as a whole: write and sync `CURRENT.new`, rename it, sync the directory.

use std::path::Path;

use crate::checksum::{FileId, checksum32};
use crate::codec::{DecodeError, Reader, put_u32, put_u64};
use crate::error::{Error, InFile, Result};
use crate::file_header::{self, FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::Fs;
use crate::limits::FILE_NUMBER_MAX;

pub(crate) const BYTES: usize = file_header::HEADER_BYTES + 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) store_id: FileId,
    pub(crate) manifest: u64,
    pub(crate) manifest_id: FileId,
}

impl Current {
    pub(crate) fn encode(&self, file_id: FileId) -> Vec<u8> {
        let mut out = FileHeader::new(FileKind::Current, self.store_id, file_id).encode().to_vec();
        put_u64(&mut out, self.manifest);
        out.extend_from_slice(&self.manifest_id);
        put_u32(&mut out, 0);
        let crc = checksum32(&file_id, 64, &[&out[64..]]);
        put_u32(&mut out, crc);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let header = FileHeader::decode_kind(bytes, FileKind::Current)?;
        if bytes.len() != BYTES {
            let detail = format!("expected {BYTES} bytes, found {}", bytes.len());
            return Err(DecodeError::corrupt(0, "CURRENT length", detail));
        }
        let body = &bytes[file_header::HEADER_BYTES..];
        let mut reader = Reader::new(body);
        let manifest = reader.u64("manifest number")?;
        let manifest_id = reader.array("manifest file id")?;
        let reserved = reader.u32("CURRENT reserved bytes")?;
        let found = reader.u32("CURRENT checksum")?;
        let expected = checksum32(&header.file_id, 64, &[&body[..28]]);
        if found != expected {
            let detail = format!("stored {found:08x}, computed {expected:08x}");
            return Err(DecodeError::corrupt(92, "CURRENT checksum", detail));
        }
        if reserved != 0 || !(1..=FILE_NUMBER_MAX).contains(&manifest) {
            let detail = format!("reserved bytes are set or manifest number {manifest} is out of range");
            return Err(DecodeError::corrupt(64, "CURRENT", detail));
        }
        Ok(Self { store_id: header.store_id, manifest, manifest_id })
    }

    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<Self>> {
        let path = FileName::Current.path(dir);
        let file = match fs.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        let len = file.len().map_err(|error| Error::io("read the length of", &path, error))?;
        let len = len.min(BYTES as u64 + 1) as usize;
        let bytes = file.read_to_vec(len, 0).map_err(|error| Error::io("read", &path, error))?;
        Self::decode(&bytes).map(Some).map_err(|error| error.in_file(&path, 0))
    }

    /// Writes the next `CURRENT` durably, as `CURRENT.new`.
    ///
    /// # Errors
    ///
    /// `CURRENT` remains unchanged.
    pub(crate) fn prepare(&self, fs: &dyn Fs, dir: &Path, file_id: FileId) -> Result<()> {
        let new = FileName::CurrentTemporary.path(dir);
        match fs.remove(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &new, error));
            }
            _ => {}
        }
        let file = fs.create(&new).map_err(|error| Error::io("create", &new, error))?;
        file.append(&self.encode(file_id)).map_err(|error| Error::io("append to", &new, error))?;
        file.sync().map_err(|error| Error::io("sync", &new, error))
    }

    /// Replaces `CURRENT` durably, after [`Current::prepare`].
    ///
    /// # Errors
    ///
    /// The replacement may or may not have happened.
    pub(super) fn replace(fs: &dyn Fs, dir: &Path) -> Result<()> {
        let (new, path) = (FileName::CurrentTemporary.path(dir), FileName::Current.path(dir));
        fs.rename(&new, &path).map_err(|error| Error::io("rename", &new, error))?;
        fs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))
    }

    #[cfg(test)]
    pub(crate) fn install(&self, fs: &dyn Fs, dir: &Path, file_id: FileId) -> Result<()> {
        self.prepare(fs, dir, file_id)?;
        Self::replace(fs, dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{CrashPolicy, MemFs};

    const CURRENT: Current = Current { store_id: [1; 16], manifest: 7, manifest_id: [2; 16] };

    #[test]
    fn it_comes_back_and_every_flip_and_truncation_is_an_error() {
        let good = CURRENT.encode([3; 16]);
        assert_eq!(Current::decode(&good), Ok(CURRENT));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Current::decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(Current::decode(&good[..len]).is_err(), "length {len}");
        }
        assert!(Current::decode(&[good, vec![0]].concat()).is_err());
    }

    #[test]
    fn a_crash_leaves_the_old_one_or_the_new_one() {
        let fs = MemFs::new();
        let dir = Path::new("/db");
        fs.create_dir(dir).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        CURRENT.install(&fs, dir, [3; 16]).unwrap();
        let next = Current { manifest: 9, ..CURRENT };
        fs.observe(move |fs, _| {
            let found = Current::read(&fs.crash(CrashPolicy::DropUnsynced), dir).unwrap().unwrap();
            assert!(found == CURRENT || found == next);
            Ok(())
        });
        next.install(&fs, dir, [4; 16]).unwrap();
        fs.stop_observing();
        assert_eq!(Current::read(&fs.crash(CrashPolicy::DropUnsynced), dir).unwrap(), Some(next));
    }
}
