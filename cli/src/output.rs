//! Standard output. A closed pipe ends a command without a message.

use std::io::{self, BufWriter, ErrorKind, Write};

use crate::escape::{PIECE_BYTES, write_escaped};
use crate::failure::{Failure, Result};
use crate::json::{Object, write_entry};

pub(crate) struct Output {
    out: BufWriter<Stdout>,
    line: Vec<u8>,
}

/// Standard output without a further buffer, so that the counts are exact.
struct Stdout {
    to: Box<dyn Write>,
    written: u64,
    /// Bytes after the last whole line.
    torn: u64,
}

impl Stdout {
    #[cfg(unix)]
    fn open() -> Box<dyn Write> {
        use std::fs::File;
        use std::os::fd::AsFd;
        let own = io::stdout().as_fd().try_clone_to_owned();
        own.map_or_else(|_| Box::new(io::stdout()) as Box<dyn Write>, |own| Box::new(File::from(own)))
    }

    #[cfg(not(unix))]
    fn open() -> Box<dyn Write> {
        Box::new(io::stdout())
    }

    /// Removes a part of a line at the end of a regular file. Returns whether the output ends with a whole line.
    #[cfg(unix)]
    fn end_after_line(&self) -> bool {
        use std::fs::File;
        use std::os::fd::AsFd;
        let cut = || cut(&mut File::from(io::stdout().as_fd().try_clone_to_owned()?), self.torn);
        self.torn == 0 || cut().is_ok()
    }

    #[cfg(not(unix))]
    fn end_after_line(&self) -> bool {
        self.torn == 0
    }
}

/// Whether standard output was closed when the process began. Before `main`, the standard library opens `/dev/null` for reading
/// and writing in its place; shells open it only for writing.
#[cfg(unix)]
pub(crate) fn is_closed() -> bool {
    use std::fs::{File, metadata};
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let Ok(own) = io::stdout().as_fd().try_clone_to_owned() else { return true };
    let mut own = File::from(own);
    let is_null = || {
        let device = own.metadata()?.rdev();
        Ok::<_, io::Error>(device != 0 && device == metadata("/dev/null")?.rdev())
    };
    is_null().unwrap_or(false) && own.read(&mut [0]).is_ok()
}

#[cfg(not(unix))]
pub(crate) fn is_closed() -> bool {
    false
}

/// Cuts off the last bytes, which were just written. The next write follows the remaining bytes.
#[cfg(unix)]
fn cut(file: &mut std::fs::File, bytes: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    let (metadata, end) = (file.metadata()?, file.stream_position()?);
    if !metadata.is_file() || metadata.len() != end || end < bytes {
        return Err(ErrorKind::Unsupported.into());
    }
    file.set_len(end - bytes)?;
    file.seek(SeekFrom::Start(end - bytes)).map(drop)
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.to.write(bytes)?;
        self.written += len as u64;
        match bytes[..len].iter().rposition(|&byte| byte == b'\n') {
            Some(newline) => self.torn = (len - newline - 1) as u64,
            None => self.torn += len as u64,
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::io("write to standard output", error),
    }
}

fn write_columns(columns: &[&[u8]], to: &mut impl Write) -> io::Result<()> {
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            to.write_all(b"\t")?;
        }
        write_escaped(column, to)?;
    }
    to.write_all(b"\n")
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = Stdout { to: Stdout::open(), written: 0, torn: 0 };
        Self { out: BufWriter::with_capacity(1 << 16, stdout), line: Vec::new() }
    }

    /// Bytes that have left the process.
    pub(crate) fn written(&self) -> u64 {
        self.out.get_ref().written
    }

    /// Drops the unwritten bytes, and a part of a line. Returns whether the output ends with a whole line.
    pub(crate) fn end_after_line(self) -> bool {
        self.out.into_parts().0.end_after_line()
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failure)
    }

    pub(crate) fn text(&mut self, line: &str) -> Result<()> {
        self.raw(line.as_bytes())?;
        self.raw(b"\n")
    }

    pub(crate) fn columns(&mut self, columns: &[&[u8]]) -> Result<()> {
        if columns.iter().map(|column| column.len()).sum::<usize>() > PIECE_BYTES {
            return write_columns(columns, &mut self.out).map_err(failure);
        }
        self.line.clear();
        write_columns(columns, &mut self.line).and_then(|()| self.out.write_all(&self.line)).map_err(failure)
    }

    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        write_entry(key, value, &mut self.out).map_err(failure)
    }

    pub(crate) fn object(&mut self, object: Object) -> Result<()> {
        self.text(&serde_json::Value::Object(object).to_string())
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(failure)
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_last_whole_line_are_counted() {
        let mut stdout = Stdout { to: Box::new(io::sink()), written: 0, torn: 0 };
        for (bytes, torn) in [("ab", 2), ("c", 3), ("d\nef\nghi", 3), ("", 3), ("\n", 0)] {
            stdout.write_all(bytes.as_bytes()).unwrap();
            assert_eq!(stdout.torn, torn, "{bytes:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_the_end_of_a_regular_file_is_cut_off() {
        use std::fs::File;
        use std::os::fd::OwnedFd;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"line\npart").unwrap();
        cut(&mut file, 4).unwrap();
        file.write_all(b"next\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"line\nnext\n");
        let mut over = File::options().write(true).open(&path).unwrap();
        over.write_all(b"LINE").unwrap();
        assert!(cut(&mut over, 4).is_err(), "other bytes follow");
        let (_reader, writer) = io::pipe().unwrap();
        let mut pipe = File::from(OwnedFd::from(writer));
        pipe.write_all(b"part").unwrap();
        assert!(cut(&mut pipe, 4).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"LINE\nnext\n");
    }
}
