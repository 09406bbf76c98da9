//! A file read through one buffer, mostly forwards.

use std::io::{self, ErrorKind};

use crate::fs::ReadFile;
use crate::inspect::output::{Result, Stop};

const AHEAD_BYTES: u64 = 1 << 20;

/// The buffer has 1 MiB, or the last request if that is longer.
pub(in crate::inspect) struct Window<'f> {
    file: &'f dyn ReadFile,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'f> Window<'f> {
    pub(in crate::inspect) fn new(file: &'f dyn ReadFile) -> Result<Self> {
        let len = file.len().map_err(|source| Stop::Read { offset: 0, source })?;
        Ok(Self { file, len, start: 0, bytes: Vec::new() })
    }

    pub(in crate::inspect) fn of_first(file: &'f dyn ReadFile, len: u64) -> Result<Self> {
        let whole = Self::new(file)?;
        Ok(Self { len: len.min(whole.len), ..whole })
    }

    pub(in crate::inspect) fn len(&self) -> u64 {
        self.len
    }

    /// Returns fewer than `len` bytes at the end of the file. The caller bounds `len`.
    pub(in crate::inspect) fn get(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        let end = offset.saturating_add(len).min(self.len);
        let offset = offset.min(end);
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let ahead = (end - offset).max(AHEAD_BYTES).min(self.len - offset);
            self.bytes.clear();
            self.bytes.resize(ahead as usize, 0);
            self.start = offset;
            if self.file.read_at(&mut self.bytes, offset).is_err() {
                // Tries again without read-ahead, which may be the only unreadable part.
                self.bytes.truncate((end - offset) as usize);
                if let Err(source) = self.file.read_at(&mut self.bytes, offset) {
                    self.bytes.clear();
                    return Err(Stop::Read { offset, source });
                }
            }
        }
        Ok(&self.bytes[(offset - self.start) as usize..(end - self.start) as usize])
    }

    /// Returns the first offset that may hold a nonzero byte, or the end. Skips holes of sparse files.
    pub(in crate::inspect) fn next_data(&self, offset: u64) -> Result<u64> {
        let data = self.file.next_data(offset).map_err(|source| Stop::Read { offset, source })?;
        Ok(data.map_or(self.len, |data| data.clamp(offset.min(self.len), self.len)))
    }

    pub(in crate::inspect) fn read_again(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.bytes.clear();
        self.get(offset, len).map(<[u8]>::to_vec)
    }

    /// Reads without a change to the buffer.
    pub(in crate::inspect) fn apart(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len).min(self.len);
        let offset = offset.min(end);
        if offset >= self.start && end <= self.start + self.bytes.len() as u64 {
            return Ok(self.bytes[(offset - self.start) as usize..(end - self.start) as usize].to_vec());
        }
        let mut bytes = vec![0; (end - offset) as usize];
        self.file.read_at(&mut bytes, offset).map_err(|source| Stop::Read { offset, source })?;
        Ok(bytes)
    }
}

#[derive(Debug)]
pub(in crate::inspect) struct InMemory<'b>(pub(in crate::inspect) &'b [u8]);

impl ReadFile for InMemory<'_> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)?.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
