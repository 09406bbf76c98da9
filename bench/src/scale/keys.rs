use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;

use crate::report::keys as keys_text;
use crate::{Result, store};

/// A prime larger than each number of keys, so that its multiples modulo that number are all numbers.
const STRIDE: u64 = 2_654_435_761;

pub(super) struct Keys {
    len: u64,
    /// Empty for random keys. Repeated below other directories.
    paths: Vec<Box<[u8]>>,
}

impl Keys {
    pub(super) fn random(len: u64) -> Self {
        Self { len, paths: Vec::new() }
    }

    pub(super) fn paths(file: &Path, len: u64) -> Result<Self> {
        let paths = BufReader::new(File::open(file)?).split(b'\n').map(|line| Ok(line?.into_boxed_slice()));
        let paths: Vec<_> = paths.collect::<Result<_>>()?;
        if paths.is_empty() {
            return Err("the file of paths is empty".into());
        }
        Ok(Self { len, paths })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    pub(super) fn name(&self) -> String {
        let kind = if self.is_paths() { "paths" } else { "random" };
        format!("{} {kind}", keys_text(self.len))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.paths.iter().map(|path| (path.len() + size_of::<Box<[u8]>>()) as u64).sum()
    }

    pub(super) fn key<'a>(&self, number: u64, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        buffer.clear();
        if self.is_paths() {
            self.path((number * STRIDE) % self.len, buffer);
        } else {
            buffer.extend_from_slice(&store::key(number));
        }
        buffer
    }

    pub(super) fn absent<'a>(&self, number: u64, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        if self.is_paths() {
            self.key(number, buffer);
            buffer.push(b'~');
        } else {
            buffer.clear();
            buffer.extend_from_slice(&store::absent_key(number));
        }
        buffer
    }

    fn path(&self, place: u64, buffer: &mut Vec<u8>) {
        let (copy, index) = (place / self.paths.len() as u64, place % self.paths.len() as u64);
        if copy > 0 {
            write!(buffer, "/copy {copy}").expect("writing to memory succeeds");
        }
        buffer.extend_from_slice(&self.paths[index as usize]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_differ_are_in_no_order_and_absent_keys_are_none_of_them() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("paths");
        std::fs::write(&file, "/etc/a\n/etc/b\n/usr/c")?;
        for keys in [Keys::random(1000), Keys::paths(&file, 1000)?] {
            let mut buffer = Vec::new();
            let present: Vec<_> = (0..1000).map(|number| keys.key(number, &mut buffer).to_vec()).collect();
            assert!(!present.is_sorted());
            let present: HashSet<_> = present.into_iter().collect();
            assert_eq!(present.len(), 1000);
            assert!((0..1000).all(|number| !present.contains(keys.absent(number, &mut buffer))));
        }
        Ok(())
    }
}
