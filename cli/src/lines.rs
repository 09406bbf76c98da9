//! The lines of a file or of standard input, as [`LineFormat`] defines them. Reading stops at an invalid line; `uniq` skips it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arguments::check_limits;
use crate::escape::{excerpt, unescape};
use crate::failure::{Failure, Result, warn};
use crate::json::is_result;
use crate::line_format::{Content, LineFormat};
use crate::store::note;
use crate::units::counted;

const PIECE_BYTES: u64 = 64 << 10;

/// Further refused lines are only counted.
const REPORTED_MAX: u64 = 10;

pub(crate) struct Lines {
    input: BufReader<Box<dyn Read>>,
    format: LineFormat,
    content: Content,
    name: String,
    bytes: Option<u64>,
    line: Vec<u8>,
    number: u64,
    read: u64,
    blank: u64,
    /// `None`: the first line without a valid key is an error.
    refused: Option<Arc<Refused>>,
    carriage_returns: u64,
    tabs: u64,
    backslashes: Backslashes,
}

/// Counts lines without a valid key, which were skipped.
#[derive(Default)]
pub(crate) struct Refused {
    input: String,
    lines: AtomicU64,
}

impl Refused {
    /// Returns the sum as a failure, once.
    pub(crate) fn check(&self) -> Result<()> {
        match self.lines.swap(0, Ordering::SeqCst) {
            0 => Ok(()),
            refused => {
                let lines = counted(refused, "line without a valid key is", "lines without a valid key are");
                Err(Failure::Usage(format!("{}: {lines} neither stored nor printed", self.input)))
            }
        }
    }
}

enum Next {
    Line,
    Refused,
    End,
}

#[derive(Default)]
struct Backslashes {
    lines: u64,
    /// Whether some backslash begins no escape; then the input is not the output of `scan`.
    are_plain: bool,
}

impl Backslashes {
    fn look_at(&mut self, line: &[u8]) {
        if !self.are_plain && line.contains(&b'\\') {
            self.lines += 1;
            self.are_plain = unescape(line).is_err();
        }
    }
}

impl Lines {
    pub(crate) fn open(path: &Path, format: LineFormat, content: Content) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::new(Box::new(io::stdin()), format, content, "standard input".into(), None));
        }
        let name = path.display().to_string();
        let cannot = |source| Failure::io(format!("read {name}"), source);
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(Box::new(file), format, content, name, bytes))
    }

    fn new(
        input: Box<dyn Read>,
        format: LineFormat,
        content: Content,
        name: String,
        bytes: Option<u64>,
    ) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 16, input),
            format,
            content,
            name,
            bytes,
            line: Vec::new(),
            number: 0,
            read: 0,
            blank: 0,
            refused: None,
            carriage_returns: 0,
            tabs: 0,
            backslashes: Backslashes::default(),
        }
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// From 1; blank lines count.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn blank(&self) -> u64 {
        self.blank
    }

    pub(crate) fn may_block(&self) -> bool {
        let mut buffered = self.input.buffer().split_inclusive(|&byte| byte == b'\n');
        let skips =
            |line: &[u8]| self.format.skips(line) || self.refused.is_some() && self.format.refuses_end(line);
        let is_next = |line: &[u8]| line.strip_suffix(b"\n").is_some_and(|line| !skips(line));
        !buffered.any(is_next)
    }

    /// Whether the next line depends on another program; earlier lines should be finished first.
    pub(crate) fn waits_for_more(&self) -> bool {
        self.bytes.is_none() && self.may_block()
    }

    /// A line without a valid key does not end the input. Returns the count of such lines.
    pub(crate) fn skip_refused(&mut self) -> Arc<Refused> {
        let refused = Refused { input: self.name.clone(), ..Refused::default() };
        Arc::clone(self.refused.insert(Arc::new(refused)))
    }

    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            match self.read_line()? {
                Next::Line => {}
                Next::Refused => continue,
                Next::End => return Ok(None),
            }
            if self.format.skips(&self.line) {
                self.blank += 1;
                continue;
            }
            if self.line.last() == Some(&b'\r') && !self.takes_carriage_return()? {
                continue;
            }
            if !self.format.literal {
                self.check_meaning()?;
            }
            return Ok(Some(&self.line));
        }
    }

    fn read_line(&mut self) -> Result<Next> {
        self.line.clear();
        let before = self.read;
        loop {
            if self.line.try_reserve(PIECE_BYTES as usize).is_err() {
                return Err(Failure::no_memory(format!("a line of {}", self.name)));
            }
            let mut piece = (&mut self.input).take(PIECE_BYTES);
            let read = match piece.read_until(b'\n', &mut self.line) {
                Ok(read) => read as u64,
                Err(error) => return Err(Failure::io(format!("read {}", self.name), error)),
            };
            self.number += u64::from(self.read == before && read > 0);
            self.read += read;
            let is_whole = self.line.last() == Some(&b'\n');
            if is_whole {
                self.line.pop();
            }
            if !self.line.is_empty()
                && let Err(failure) = self.format.check_begun(self.content, &self.line)
            {
                self.refuse(failure)?;
                if !is_whole {
                    self.skip_to_line_end()?;
                }
                return Ok(Next::Refused);
            }
            if is_whole || read == 0 {
                return Ok(if self.read > before { Next::Line } else { Next::End });
            }
        }
    }

    fn skip_to_line_end(&mut self) -> Result<()> {
        self.line = Vec::new();
        let skipped = self.input.skip_until(b'\n');
        self.read += skipped.map_err(|error| Failure::io(format!("read {}", self.name), error))? as u64;
        Ok(())
    }

    /// Reports that the current line has no valid key, or returns the failure.
    pub(crate) fn refuse(&mut self, failure: Failure) -> Result<()> {
        let failure = self.blame(failure);
        let (Some(refused), Failure::Usage(message)) = (&self.refused, &failure) else {
            return Err(failure);
        };
        if refused.lines.fetch_add(1, Ordering::SeqCst) < REPORTED_MAX {
            warn("sievedb", message);
        }
        Ok(())
    }

    /// Refuses JSON lines, and counts ambiguous lines.
    fn check_meaning(&mut self) -> Result<()> {
        match self.content {
            Content::Json | Content::Line | Content::Text(_) => return Ok(()),
            Content::Key => self.tabs += u64::from(self.line.contains(&b'\t')),
            Content::Entry => {}
        }
        if is_result(&self.line) {
            let remedy = match self.content {
                Content::Entry => "--from-json reads it",
                _ => "`scan` without --json prints keys for --escaped",
            };
            return Err(self.blame(Failure::Usage(format!(
                "{} was printed with --json: {remedy}, --literal takes it as a key",
                excerpt(&self.line)
            ))));
        }
        if !self.format.arguments.escaped {
            self.backslashes.look_at(&self.line);
        }
        Ok(())
    }

    /// Whether the line is used.
    fn takes_carriage_return(&mut self) -> Result<bool> {
        if self.format.refuses_end(&self.line) {
            let why = "the line ends with a carriage return (CRLF): --crlf drops it, --literal keeps it";
            return self.refuse(Failure::Usage(why.into())).map(|()| false);
        }
        if self.format.crlf {
            self.line.pop();
        } else {
            self.carriage_returns += 1;
        }
        Ok(true)
    }

    pub(crate) fn key(&self) -> Result<Cow<'_, [u8]>> {
        let key = self.format.decode(&self.line);
        let checked = key.and_then(|key| check_limits(&key, b"").map(|()| key));
        checked.map_err(|failure| self.blame(failure))
    }

    pub(crate) fn current(&self) -> &[u8] {
        &self.line
    }

    pub(crate) fn print_notes(&self) {
        if self.blank > 0 {
            let lines = counted(self.blank, "blank line", "blank lines");
            let remedy = match self.content {
                Content::Json => "",
                _ => "; --empty-key reads a blank line as the empty key",
            };
            note(&format!("{lines} skipped{remedy}"));
        }
        if self.carriage_returns > 0 {
            let lines = counted(self.carriage_returns, "line ends", "lines end");
            note(&format!("{lines} with a carriage return (CRLF), which was kept; --crlf drops it"));
        }
        if self.tabs > 0 {
            let lines = counted(self.tabs, "line has a tab, which is", "lines have tabs, which are");
            note(&format!("{lines} part of the key; `cut -f1` takes the keys from what `scan` prints"));
        }
    }

    /// Prints a note if backslashes were used unchanged and every one began an escape, as in the output of `scan`.
    pub(crate) fn print_note_on_escapes(&self) {
        if self.backslashes.lines > 0 && !self.backslashes.are_plain {
            let lines = counted(self.backslashes.lines, "line has", "lines have");
            note(&format!("{lines} backslashes, which were kept; --escaped reads what `scan` prints"));
        }
    }

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

    use crate::arguments::Arguments;

    const ESCAPED: Arguments = Arguments { escaped: true };
    const LITERAL: LineFormat =
        LineFormat { arguments: Arguments { escaped: false }, literal: true, crlf: false, empty_key: false };

    fn open(input: &'static [u8], format: LineFormat) -> Lines {
        Lines::new(Box::new(input), format, Content::Key, "test".into(), None)
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

    #[test]
    fn a_line_without_an_end_is_read_only_as_far_as_it_can_be_valid() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += buffer.len() as u64;
                assert!(self.0 < 1 << 20, "it is read on and on");
                buffer.fill(b'k');
                Ok(buffer.len())
            }
        }
        for arguments in [Arguments::default(), ESCAPED] {
            let format = LineFormat { arguments, ..LineFormat::default() };
            for content in [Content::Key, Content::Line, Content::Entry, Content::Json, Content::Text(1000)] {
                let mut lines = Lines::new(Box::new(Endless(0)), format, content, "test".into(), None);
                let message = lines.next().unwrap_err().to_string();
                assert!(message.starts_with("test, line 1: "), "{message}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_little_memory_if_lines_are_refused() {
        let content = Content::Text(1000);
        let parts: [&[u8]; 3] = [b"a\n\n", &[b'x'; 1002], b"\nb\n"];
        let whole = parts.concat();
        let long = [b"a\n", &vec![b'x'; 9 << 20][..], b"\n\nb\n", &[b'y'; 1002]].concat();
        for (input, refused, lines_read) in [(whole, 1, 4), (long, 2, 5)] {
            let len = input.len() as u64;
            let format = LineFormat { empty_key: true, ..LITERAL };
            let input = Box::new(io::Cursor::new(input));
            let mut lines = Lines::new(input, format, content, "test".into(), None);
            let count = lines.skip_refused();
            for line in [&b"a"[..], b"", b"b"] {
                assert_eq!(lines.next().unwrap(), Some(line));
                assert!(lines.line.capacity() < 1 << 20);
            }
            assert_eq!(lines.next().unwrap(), None);
            assert_eq!((lines.number(), lines.position()), (lines_read, len));
            assert_eq!(count.lines.load(Ordering::SeqCst), refused);
            assert!(count.check().is_err() && count.check().is_ok());
        }
    }

    #[test]
    fn a_line_is_its_own_key_and_escapes_are_read_only_if_asked_for() {
        let key = |format| {
            let mut lines = open(b"C:\\temp\\new\n", format);
            lines.next().unwrap();
            lines.key().unwrap().into_owned()
        };
        assert_eq!(key(LineFormat::default()), b"C:\\temp\\new");
        assert_eq!(key(LITERAL), b"C:\\temp\\new");
        assert_eq!(key(LineFormat { arguments: ESCAPED, ..LineFormat::default() }), b"C:\temp\new");
    }

    #[test]
    fn backslashes_may_be_escapes_only_if_all_of_them_can_be() {
        for (input, may_be) in [
            (&b"a\nb\n"[..], false),
            (b"C:\\temp\n", true),
            (b"C:\\temp\nC:\\users\n", false),
            (b"a\\x41\\\\\n", true),
        ] {
            let mut lines = open(input, LineFormat::default());
            while lines.next().unwrap().is_some() {}
            assert_eq!(lines.backslashes.lines > 0 && !lines.backslashes.are_plain, may_be, "{input:?}");
        }
    }
}
