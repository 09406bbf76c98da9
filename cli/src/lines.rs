//! What a command reads: lines of any bytes, from a file or from standard input.
//!
//! A line ends with a newline byte or with the input. Nothing is trimmed: a carriage return belongs to its
//! line, and an empty line is the empty key. A line has a largest length, so that an input without newlines
//! cannot take all memory.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sievedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::escape::unescape;
use crate::failure::{Failure, Result};

/// Longest line: a key, a tab and a value, each byte of them escaped.
const LINE_BYTES_MAX: u64 = 4 * (KEY_BYTES_MAX as u64 + VALUE_BYTES_MAX as u64) + 1;

/// How keys and values are read.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Encoding {
    /// Read \t \n \\ \xHH in keys and values as the bytes they stand for.
    #[arg(long)]
    pub(crate) escaped: bool,
}

impl Encoding {
    /// The bytes that `text` stands for.
    pub(crate) fn read(self, text: &[u8]) -> Result<Cow<'_, [u8]>> {
        if !self.escaped {
            return Ok(Cow::Borrowed(text));
        }
        unescape(text).map_err(|bad| Failure::Usage(bad.to_string()))
    }

    /// The bytes that an argument stands for.
    pub(crate) fn argument(self, argument: &OsStr) -> Result<Vec<u8>> {
        self.read(argument.as_encoded_bytes()).map(Cow::into_owned)
    }

    /// The same of an argument that need not be there.
    pub(crate) fn optional(self, argument: Option<&OsString>) -> Result<Option<Vec<u8>>> {
        argument.map(|argument| self.argument(argument)).transpose()
    }
}

/// Refuses what no store takes, before anything is done.
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    for (what, bytes, max) in [("key", key, KEY_BYTES_MAX), ("value", value, VALUE_BYTES_MAX)] {
        if bytes.len() > max {
            let len = bytes.len();
            return Err(Failure::Usage(format!("a {what} of {len} bytes is over the limit of {max}")));
        }
    }
    Ok(())
}

/// The lines of an input.
pub(crate) struct Lines {
    input: BufReader<Box<dyn Read>>,
    name: String,
    bytes: Option<u64>,
    line: Vec<u8>,
    number: u64,
    read: u64,
}

impl Lines {
    /// Opens a file, or standard input for `-`. An input that cannot be read at all is refused here.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::new(Box::new(io::stdin()), "standard input".into(), None));
        }
        let name = path.display().to_string();
        let cannot = |source| Failure::io(format!("read {name}"), source);
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(Box::new(file), name, bytes))
    }

    fn new(input: Box<dyn Read>, name: String, bytes: Option<u64>) -> Self {
        let input = BufReader::with_capacity(1 << 16, input);
        Self { input, name, bytes, line: Vec::new(), number: 0, read: 0 }
    }

    /// Length of the input in bytes, if it has one.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// Number of lines read so far.
    pub(crate) fn count(&self) -> u64 {
        self.number
    }

    /// Whether the next line may have to be waited for.
    pub(crate) fn may_wait(&self) -> bool {
        !self.input.buffer().contains(&b'\n')
    }

    /// The next line without its newline; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let mut input = (&mut self.input).take(LINE_BYTES_MAX + 1);
        let read = match input.read_until(b'\n', &mut self.line) {
            Ok(read) => read as u64,
            Err(error) => return Err(Failure::io(format!("read {}", self.name), error)),
        };
        if read == 0 {
            return Ok(None);
        }
        self.read += read;
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read > LINE_BYTES_MAX {
            return Err(self.blame(Failure::Usage(format!("it is longer than {LINE_BYTES_MAX} bytes"))));
        }
        Ok(Some(&self.line))
    }

    /// The line that [`Lines::next`] gave last.
    pub(crate) fn current(&self) -> &[u8] {
        &self.line
    }

    /// A failure with the input and the line that it is about.
    pub(crate) fn blame(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Usage(message) => {
                Failure::Usage(format!("{}, line {}: {message}", self.name, self.number))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &'static [u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(Box::new(input), "test".into(), None);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_vec());
        }
        assert_eq!((lines.count(), lines.position()), (all.len() as u64, input.len() as u64));
        all
    }

    #[test]
    fn lines_are_bytes_and_the_last_one_needs_no_newline() {
        assert!(lines(b"").is_empty());
        assert_eq!(lines(b"\n"), [b""]);
        assert_eq!(lines(b"a\r\n\n\xff\0"), [&b"a\r"[..], b"", b"\xff\0"]);
        assert_eq!(lines(b"a\nb\n"), [b"a", b"b"]);
    }
}
