//! The input of a command: arguments, and lines from a file or from standard input.
//!
//! Lines are read as `scan` prints them: `\t`, `\n`, `\\` and `\xHH` are escapes (`--literal` turns that
//! off), and every other byte stands for itself. A line ends with a newline or with the input. Two things are
//! hardly ever meant, and are not taken for data without a word:
//!
//! - A carriage return before the newline (CRLF) is an error. `--crlf` drops it; with `--literal` it belongs
//!   to the line, and a note counts such lines.
//! - A blank line is skipped, and a note counts them. With `--empty-key` it is the empty key. (The empty key
//!   that `scan` prints is followed by a tab, and is not a blank line.)
//!
//! A line has a largest length, so that an input without newlines cannot take all memory.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sievedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::escape::{BadEscape, excerpt, unescape};
use crate::failure::{Failure, Result};
use crate::store::note;
use crate::units::counted;

/// Longest line: a key, a tab and a value, each byte of them escaped.
const LINE_BYTES_MAX: u64 = 4 * (KEY_BYTES_MAX as u64 + VALUE_BYTES_MAX as u64) + 1;

/// How keys and values in arguments are read.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Arguments {
    /// Read \t \n \\ \xHH in arguments as the bytes they stand for.
    #[arg(long)]
    escaped: bool,
}

impl Arguments {
    /// The bytes that an argument stands for.
    pub(crate) fn decode(self, argument: &OsStr) -> Result<Vec<u8>> {
        let bytes = argument.as_encoded_bytes();
        if !self.escaped {
            return Ok(bytes.to_vec());
        }
        unescape(bytes).map(Cow::into_owned).map_err(|bad| Failure::Usage(bad.to_string()))
    }

    /// The same for an argument that may be missing.
    pub(crate) fn decode_optional(self, argument: Option<&OsString>) -> Result<Option<Vec<u8>>> {
        argument.map(|argument| self.decode(argument)).transpose()
    }
}

/// How lines are read.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct LineFormat {
    /// Take lines as they are: a backslash is a backslash.
    #[arg(long)]
    pub(crate) literal: bool,
    /// Drop the carriage return at the end of each line (CRLF).
    #[arg(long)]
    pub(crate) crlf: bool,
    /// Read a blank line as the empty key; by default blank lines are skipped.
    #[arg(long)]
    pub(crate) empty_key: bool,
}

impl LineFormat {
    /// The bytes that a part of a line stands for.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Cow<'_, [u8]>> {
        if self.literal {
            return Ok(Cow::Borrowed(text));
        }
        let explain = |bad: BadEscape| Failure::Usage(format!("{bad}; --literal takes lines as they are"));
        unescape(text).map_err(explain)
    }

    /// Refuses options for lines where no lines are read.
    pub(crate) fn check_unused(self) -> Result<()> {
        for (given, name) in
            [(self.literal, "--literal"), (self.crlf, "--crlf"), (self.empty_key, "--empty-key")]
        {
            if given {
                return Err(Failure::Usage(format!("{name} is for keys from standard input")));
            }
        }
        Ok(())
    }

    /// Whether a line with this content, its newline removed, is skipped.
    fn skips(self, line: &[u8]) -> bool {
        !self.empty_key && (line.is_empty() || (self.crlf && line == b"\r"))
    }
}

/// Refuses what no store takes, before anything is written.
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    let (key_bytes, value_bytes) = (key.len(), value.len());
    if key_bytes > KEY_BYTES_MAX {
        let key = excerpt(key);
        return Err(Failure::Usage(format!(
            "the key {key} has {key_bytes} bytes, over the limit of {KEY_BYTES_MAX}"
        )));
    }
    if value_bytes > VALUE_BYTES_MAX {
        let key = excerpt(key);
        return Err(Failure::Usage(format!(
            "the value of key {key} has {value_bytes} bytes, over the limit of {VALUE_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// The lines of an input.
pub(crate) struct Lines {
    input: BufReader<Box<dyn Read>>,
    format: LineFormat,
    name: String,
    bytes: Option<u64>,
    line: Vec<u8>,
    number: u64,
    read: u64,
    blank: u64,
    carriage_returns: u64,
}

impl Lines {
    /// Opens a file, or standard input for `-`. An input that cannot be read at all is refused here.
    pub(crate) fn open(path: &Path, format: LineFormat) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::new(Box::new(io::stdin()), format, "standard input".into(), None));
        }
        let name = path.display().to_string();
        let cannot = |source| Failure::io(format!("read {name}"), source);
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(Box::new(file), format, name, bytes))
    }

    fn new(input: Box<dyn Read>, format: LineFormat, name: String, bytes: Option<u64>) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 16, input),
            format,
            name,
            bytes,
            line: Vec::new(),
            number: 0,
            read: 0,
            blank: 0,
            carriage_returns: 0,
        }
    }

    /// Length of the input in bytes, if it is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// Number of the current line, from 1. Blank lines count.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Blank lines skipped so far.
    pub(crate) fn blank(&self) -> u64 {
        self.blank
    }

    /// Whether the next line is not in the buffer yet, so that reading it may block.
    pub(crate) fn may_block(&self) -> bool {
        let mut buffered = self.input.buffer().split_inclusive(|&byte| byte == b'\n');
        let is_next = |line: &[u8]| line.strip_suffix(b"\n").is_some_and(|line| !self.format.skips(line));
        !buffered.any(is_next)
    }

    /// Whether the next line comes only when somebody sends it: what came before it should be done first.
    pub(crate) fn waits_for_more(&self) -> bool {
        self.bytes.is_none() && self.may_block()
    }

    /// The next line that is not skipped, without its newline; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        while self.read_line()? {
            if self.format.skips(&self.line) {
                self.blank += 1;
                continue;
            }
            if self.line.last() == Some(&b'\r') {
                self.end_with_carriage_return()?;
            }
            return Ok(Some(&self.line));
        }
        Ok(None)
    }

    /// Reads a line without its newline; `false` at the end.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let mut input = (&mut self.input).take(LINE_BYTES_MAX + 1);
        let read = match input.read_until(b'\n', &mut self.line) {
            Ok(read) => read as u64,
            Err(error) => return Err(Failure::io(format!("read {}", self.name), error)),
        };
        if read == 0 {
            return Ok(false);
        }
        self.read += read;
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read > LINE_BYTES_MAX {
            let line = excerpt(&self.line);
            return Err(self.blame(Failure::Usage(format!("{line} is longer than {LINE_BYTES_MAX} bytes"))));
        }
        Ok(true)
    }

    fn end_with_carriage_return(&mut self) -> Result<()> {
        if self.format.crlf {
            self.line.pop();
        } else if self.format.literal {
            self.carriage_returns += 1;
        } else {
            return Err(self.blame(Failure::Usage(
                "the line ends with a carriage return (CRLF): --crlf drops it, --literal keeps it".into(),
            )));
        }
        Ok(())
    }

    /// The line that [`Lines::next`] returned last.
    pub(crate) fn current(&self) -> &[u8] {
        &self.line
    }

    /// Prints a note on lines that may not mean what their author thinks.
    pub(crate) fn print_notes(&self) {
        if self.blank > 0 {
            let lines = counted(self.blank, "blank line", "blank lines");
            note(&format!("{lines} skipped; --empty-key reads a blank line as the empty key"));
        }
        if self.carriage_returns > 0 {
            let lines = counted(self.carriage_returns, "line ends", "lines end");
            note(&format!("{lines} with a carriage return (CRLF), which was kept; --crlf drops it"));
        }
    }

    /// Adds the input's name and the line number to a failure.
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

    const LITERAL: LineFormat = LineFormat { literal: true, crlf: false, empty_key: false };

    fn open(input: &'static [u8], format: LineFormat) -> Lines {
        Lines::new(Box::new(input), format, "test".into(), None)
    }

    fn lines(input: &'static [u8], format: LineFormat) -> Vec<Vec<u8>> {
        let mut lines = open(input, format);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_vec());
        }
        assert_eq!((lines.number(), lines.position()), (all.len() as u64 + lines.blank, input.len() as u64));
        all
    }

    #[test]
    fn lines_are_bytes_and_the_last_one_needs_no_newline() {
        assert!(lines(b"", LITERAL).is_empty());
        assert_eq!(lines(b"a\r\n\xff\0", LITERAL), [&b"a\r"[..], b"\xff\0"]);
        assert_eq!(lines(b"a\nb\n", LITERAL), [b"a", b"b"]);
    }

    #[test]
    fn a_blank_line_is_skipped_or_the_empty_key() {
        assert!(lines(b"\n", LITERAL).is_empty());
        assert_eq!(lines(b"a\n\n\nb\n", LITERAL), [b"a", b"b"]);
        assert_eq!(lines(b"a\n\n", LineFormat { empty_key: true, ..LITERAL }), [&b"a"[..], b""]);
        assert_eq!(lines(b"\r\na\r\n", LineFormat { crlf: true, ..LITERAL }), [b"a"]);
        // The empty key as `scan` prints it.
        assert_eq!(lines(b"\t\n", LineFormat::default()), [b"\t"]);
    }

    #[test]
    fn a_carriage_return_is_an_error_unless_it_is_dropped_or_kept() {
        let mut input = open(b"a\nb\r\n", LineFormat::default());
        assert_eq!(input.next().unwrap(), Some(&b"a"[..]));
        let message = input.next().unwrap_err().to_string();
        assert!(message.starts_with("test, line 2: the line ends with a carriage return"), "{message}");
        let crlf = LineFormat { crlf: true, ..LineFormat::default() };
        assert_eq!(lines(b"a\r\nb\r\r\nc", crlf), [&b"a"[..], b"b\r", b"c"]);
    }

    #[test]
    fn blank_lines_in_the_buffer_do_not_hide_that_the_next_read_may_block() {
        let mut input = open(b"a\n\n\nb\nc", LineFormat::default());
        assert!(input.may_block());
        for (line, blocks) in [(b"a", false), (b"b", true)] {
            assert_eq!(input.next().unwrap(), Some(&line[..]));
            assert_eq!(input.may_block(), blocks);
        }
        let mut input = open(b"a\n\n\n", LineFormat::default());
        assert_eq!(input.next().unwrap(), Some(&b"a"[..]));
        assert!(input.may_block());
    }
}
