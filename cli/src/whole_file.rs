use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::failure::{Failure, Result};

/// Stops if `may_begin` refuses the first `prefix_len` bytes: a wrong file may be endless.
pub(crate) fn read(path: &Path, prefix_len: u64, may_begin: impl FnOnce(&[u8]) -> bool) -> Result<Vec<u8>> {
    let cannot = |error| Failure::io(format!("read {}", path.display()), error);
    let mut file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    (&mut file).take(prefix_len).read_to_end(&mut bytes).map_err(cannot)?;
    if may_begin(&bytes) {
        file.read_to_end(&mut bytes).map_err(cannot)?;
    }
    Ok(bytes)
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_new = path.symlink_metadata().is_err();
    fs::write(path, bytes).map_err(|error| {
        if is_new {
            // The earlier failure is reported.
            let _ = fs::remove_file(path);
        }
        Failure::io(format!("write {}", path.display()), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_beginning_is_not_read_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, b"beginning and end").unwrap();
        assert_eq!(read(&path, 5, |prefix| prefix == b"begin").unwrap(), b"beginning and end");
        assert_eq!(read(&path, 5, |_| false).unwrap(), b"begin");
        assert_eq!(read(&path, 50, |prefix| prefix.len() == 17).unwrap(), b"beginning and end");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_cannot_be_written_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        assert!(write(&link, b"more").is_err() && link.is_symlink(), "it was there before");
        assert!(write(&folder.path().join("no folder/file"), b"more").is_err());
    }
}
