use std::io::ErrorKind;
use std::path::Path;

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::fs::Fs;

const PIECE_BYTES: usize = 64 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(in crate::db) enum Found {
    Nothing,
    /// The length is 0 after an interrupted creation.
    Ours(u64),
    Others,
}

pub(in crate::db) fn find(fs: &dyn Fs, dir: &Path, store_id: FileId) -> Result<Found> {
    let path = FileName::Reserve.path(dir);
    let mut head = [0; size_of::<FileId>()];
    let read = fs.open(&path).and_then(|file| {
        let len = file.len()?;
        let head = &mut head[..len.min(size_of::<FileId>() as u64) as usize];
        file.read_at(head, 0).map(|()| (len, &*head))
    });
    match read {
        Ok((len, head)) if *head == store_id => Ok(Found::Ours(len)),
        Ok((_, head)) if store_id.starts_with(head) || head.iter().all(|&byte| byte == 0) => {
            Ok(Found::Ours(0))
        }
        Ok(_) => Ok(Found::Others),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(Found::Others),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(Error::io("read", &path, error)),
    }
}

pub(in crate::db) fn remove_reserve_file(fs: &dyn Fs, dir: &Path, store_id: FileId) -> Result<u64> {
    let Found::Ours(bytes) = find(fs, dir, store_id)? else { return Ok(0) };
    let path = FileName::Reserve.path(dir);
    match fs.remove(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path, error)),
        _ => Ok(bytes),
    }
}

pub(in crate::db) fn write_reserve_file(fs: &dyn Fs, dir: &Path, store_id: FileId, bytes: u64) -> Result<()> {
    let path = FileName::Reserve.path(dir);
    let file = fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
    let append = |bytes: &[u8]| file.append(bytes).map_err(|error| Error::io("append to", &path, error));
    let mut noise = Noise(LittleEndian::read_u64(&store_id));
    let mut left = bytes.saturating_sub(store_id.len() as u64);
    append(&store_id)?;
    while left > 0 {
        let piece = noise.bytes(left.min(PIECE_BYTES as u64) as usize);
        append(&piece)?;
        left -= piece.len() as u64;
    }
    file.sync().map_err(|error| Error::io("sync", &path, error))
}

struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len.next_multiple_of(8)];
        for word in out.chunks_exact_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            LittleEndian::write_u64(word, z ^ (z >> 31));
        }
        out.truncate(len);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;

    #[test]
    fn what_a_crash_has_left_of_a_new_reserve_is_removed_and_a_file_of_others_stays() {
        let (fs, dir, id) = (MemFs::new(), Path::new("/db"), [9; 16]);
        let path = FileName::Reserve.path(dir);
        let is_there = || fs.files(dir).iter().any(|(found, _)| *found == path);
        for left in [vec![], vec![0; 5000], id[..7].to_vec(), id.to_vec()] {
            fs.overwrite(&path, left);
            remove_reserve_file(&fs, dir, id).unwrap();
            assert!(!is_there());
        }
        fs.overwrite(&path, vec![7; 5000]);
        remove_reserve_file(&fs, dir, id).unwrap();
        assert!(is_there() && find(&fs, dir, id).unwrap() == Found::Others);
    }
}
