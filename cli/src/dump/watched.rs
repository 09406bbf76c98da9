use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use sievedb::fs::ReadFile;

use crate::progress::Progress;

pub(super) struct Watched<'f> {
    file: &'f dyn ReadFile,
    total: u64,
    progress: Mutex<(u64, Progress)>,
}

impl<'f> Watched<'f> {
    pub(super) fn new(file: &'f dyn ReadFile, label: &'static str, times: u64) -> Self {
        let total = file.len().unwrap_or(0).saturating_mul(times);
        Self { file, total, progress: Mutex::new((0, Progress::of_bytes(label, Some(total)))) }
    }
}

impl ReadFile for Watched<'_> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)?;
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.0 += buffer.len() as u64;
        // The footer and the filter are read twice.
        let read = progress.0.min(self.total);
        progress.1.at(read);
        Ok(())
    }
}

impl fmt::Debug for Watched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("file", &self.file).finish_non_exhaustive()
    }
}
