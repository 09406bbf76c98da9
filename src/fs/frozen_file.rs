//! A file as of one moment, while a writer appends to it.
//!
//! A log may end with zeros, so the end of its data is not its length. A frozen file reads as zeros after its *end of
//! data*, even after later appends.
//!
//! [`FrozenFile::now`] searches for the end of data from the end of the file backward. Data is only appended. So the
//! data ended there at some moment between the read of the zeros and the read of the data before them.

use std::io;
use std::sync::Arc;

use super::ReadFile;

const PART_BYTES: u64 = 16 << 10;

#[derive(Debug, Clone)]
pub(crate) struct FrozenFile {
    file: Arc<dyn ReadFile>,
    data_end: u64,
    len: u64,
}

impl FrozenFile {
    pub(crate) fn first_bytes(file: Arc<dyn ReadFile>, len: u64) -> Self {
        Self { file, data_end: len, len }
    }

    pub(crate) fn now(file: Arc<dyn ReadFile>) -> io::Result<Self> {
        loop {
            let len = file.len()?;
            match data_end(&*file, len) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && file.len()? < len => {}
                data_end => return Ok(Self { data_end: data_end?, file, len }),
            }
        }
    }

    /// Whether both have the same end of data.
    pub(crate) fn ends_like(&self, other: &Self) -> bool {
        (self.data_end, self.len) == (other.data_end, other.len)
    }
}

fn data_end(file: &dyn ReadFile, len: u64) -> io::Result<u64> {
    let mut end = hole_at_the_end(file, len)?;
    let mut part = vec![0; PART_BYTES.min(end) as usize];
    while end > 0 {
        let start = end.saturating_sub(PART_BYTES);
        let part = &mut part[..(end - start) as usize];
        file.read_at(part, start)?;
        if let Some(last) = part.iter().rposition(|&byte| byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn hole_at_the_end(file: &dyn ReadFile, len: u64) -> io::Result<u64> {
    let (mut data, mut hole) = (0, len);
    while hole - data > PART_BYTES {
        let at = if hole == len { len - 1 } else { data + (hole - data) / 2 };
        match file.next_data(at)? {
            Some(_) if hole == len => return Ok(len),
            Some(found) => data = found.clamp(at, hole),
            None => hole = at,
        }
    }
    Ok(hole)
}

impl ReadFile for FrozenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let data = self.data_end.saturating_sub(offset).min(buffer.len() as u64);
        let (data, zeros) = buffer.split_at_mut(data as usize);
        zeros.fill(0);
        if data.is_empty() { Ok(()) } else { self.file.read_at(data, offset) }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        if offset >= self.data_end {
            return Ok(None);
        }
        Ok(self.file.next_data(offset)?.filter(|&data| data < self.data_end))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fs, MemFs, StdFs};
    use super::*;

    fn all(file: &FrozenFile) -> Vec<u8> {
        file.read_to_vec(file.len().unwrap() as usize, 0).unwrap()
    }

    #[test]
    fn appends_that_follow_are_not_seen_whether_the_file_had_room_for_them_or_not() {
        let (dir, mem) = (tempfile::tempdir().unwrap(), MemFs::new());
        mem.create_dir(dir.path()).unwrap();
        for fs in [&StdFs as &dyn Fs, &mem] {
            for (number, room) in [0, 10, 5_000, 3 << 20].into_iter().enumerate() {
                let path = dir.path().join(number.to_string());
                let (file, read) = (fs.create(&path).unwrap(), fs.open(&path).unwrap());
                assert!(all(&FrozenFile::now(Arc::clone(&read)).unwrap()).is_empty());
                let mut before = vec![7; 40_000];
                file.append(&before).unwrap();
                file.set_len(before.len() as u64 + room).unwrap();
                let frozen = FrozenFile::now(Arc::clone(&read)).unwrap();
                let now = || FrozenFile::now(Arc::clone(&read)).unwrap();
                assert!(now().ends_like(&frozen) && frozen.data_end == 40_000);
                file.append(&[8; 60_000]).unwrap();
                before.resize(before.len() + room as usize, 0);
                assert!(!now().ends_like(&frozen) && all(&frozen) == before);
                assert!(frozen.read_at(&mut [0; 2], before.len() as u64 - 1).is_err());
                assert_eq!(frozen.next_data(39_999).unwrap(), Some(39_999));
                assert_eq!(frozen.next_data(40_000).unwrap(), None);
                assert_eq!(FrozenFile::now(read).unwrap().data_end, 100_000);
            }
        }
    }

    #[test]
    fn room_that_is_cut_off_does_not_make_a_frozen_file_shorter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (file, read) = (StdFs.create(&path).unwrap(), StdFs.open(&path).unwrap());
        file.append(b"ab").unwrap();
        file.set_len(1 << 20).unwrap();
        let frozen = FrozenFile::now(read).unwrap();
        file.set_len(2).unwrap();
        assert_eq!(all(&frozen)[..4], *b"ab\0\0");
        assert_eq!(all(&frozen).len(), 1 << 20);
    }

    /// Becomes shorter after each query of its length.
    #[derive(Debug)]
    struct Shrinking(std::sync::atomic::AtomicU64);

    impl ReadFile for Shrinking {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed))
        }

        fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<()> {
            buffer.fill(1);
            if self.len()? > 90 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn a_file_that_becomes_shorter_meanwhile_is_looked_at_again() {
        let frozen = FrozenFile::now(Arc::new(Shrinking(100.into()))).unwrap();
        assert!(frozen.len <= 93, "{}", frozen.len);
    }
}
