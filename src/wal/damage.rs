//! What else is damaged in a log that is: a reader stops at the first damage, somebody who looks does not.

use std::path::Path;

use super::record::{AreaStatus, PAGE_BYTES, areas};
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, HEADER_BYTES};
use crate::fs::ReadFile;

/// The damaged stretches behind `offset` that intact fragments follow: those that are no torn end. Up to
/// `max` of them, and how many more there are.
///
/// # Errors
///
/// [`Error::Io`], and [`Error::Corruption`] if the header of the file cannot be read.
pub(crate) fn damage_behind(
    file: &dyn ReadFile,
    path: &Path,
    offset: u64,
    max: usize,
) -> Result<(Vec<Error>, u64)> {
    let read = |offset: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        let done = file.read_at(&mut bytes, offset);
        done.map(|()| bytes).map_err(|error| Error::io("read", path, error))
    };
    let len = file.len().map_err(|error| Error::io("read", path, error))?;
    let header = FileHeader::decode(&read(0, len.min(HEADER_BYTES as u64))?);
    let file_id = header.map_err(|error| error.in_file(path, 0))?.file_id;
    let (mut found, mut waiting) = (Vec::new(), Vec::new());
    let (mut omitted, mut waiting_omitted) = (0, 0);
    let mut at = offset - offset % 8;
    while at < len {
        let page_end = len.min((at / PAGE_BYTES as u64 + 1) * PAGE_BYTES as u64);
        let page = read(at, page_end - at)?;
        for area in areas(&file_id, at, &page) {
            match area.status {
                AreaStatus::Intact(_) => {
                    found.append(&mut waiting);
                    omitted += std::mem::take(&mut waiting_omitted);
                }
                AreaStatus::Padding => {}
                AreaStatus::Damaged(_) if area.offset <= offset => {}
                AreaStatus::Damaged(_) if found.len() + waiting.len() >= max => waiting_omitted += 1,
                AreaStatus::Damaged(damage) => {
                    waiting.push(Error::corruption(path, area.offset, "log fragment", damage.to_string()));
                }
            }
        }
        at = page_end;
    }
    Ok((found, omitted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_header::FileKind;
    use crate::fs::{Fs, MemFs};
    use crate::wal::{FramedWriter, RecordKind};

    #[test]
    fn what_is_not_listed_is_counted_and_a_torn_end_is_neither() {
        let (fs, path) = (MemFs::new(), Path::new("/db/log"));
        fs.create_dir(Path::new("/db")).unwrap();
        let header = FileHeader::new(FileKind::Log, [1; 16], [2; 16]);
        let mut writer = FramedWriter::create(&fs, path, header).unwrap();
        // Each 40 bytes long.
        for _ in 0..2000 {
            writer.append_record(RecordKind::Batch, &[7; 24]).unwrap();
        }
        writer.sync().unwrap();
        let mut bytes = fs.files(path)[0].1.clone();
        let first = HEADER_BYTES + 40;
        (0..400).for_each(|index| bytes[first + 80 * index + 20] ^= 1);
        let end = bytes.len() - 10;
        bytes[end] ^= 1;
        fs.overwrite(path, bytes);
        let file = fs.open(path).unwrap();
        for (max, listed, omitted) in [(1000, 399, 0), (399, 399, 0), (100, 100, 299), (0, 0, 399)] {
            let (found, more) = damage_behind(&*file, path, first as u64, max).unwrap();
            assert_eq!((found.len(), more), (listed, omitted), "at most {max}");
        }
    }
}
