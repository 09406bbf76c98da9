//! How lines are read. Every command that reads lines has these options, so that the same line is the same
//! key everywhere:
//!
//! - A line is used unchanged. With `--escaped`, `\t`, `\n`, `\\` and `\xHH` are read as `scan` prints them, and
//!   every other byte is itself.
//! - A blank line is skipped, and a note counts them. With `--empty-key` it is the empty key.
//! - A carriage return before the newline (CRLF) is an error. `--crlf` drops it.
//! - A line that a command printed with `--json` is an error, where a line is a key or an entry.
//! - `--literal` accepts both as part of the line. A note counts the carriage returns.

use std::borrow::Cow;

use sievedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::arguments::Arguments;
use crate::escape::excerpt;
use crate::failure::{Failure, Result};

/// Bytes of the longest escape, `\xHH`.
const ESCAPE_BYTES: usize = 4;

/// Bytes of the longest escape of a byte in JSON, `\u0000`.
const JSON_ESCAPE_BYTES: usize = 6;

/// Names and punctuation of an entry in JSON.
const JSON_FRAME_BYTES: usize = 64;

/// How lines are read.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct LineFormat {
    #[command(flatten)]
    pub(crate) arguments: Arguments,
    /// Take each line as it is, also if it ends with a carriage return or was printed with --json.
    #[arg(long, conflicts_with = "escaped")]
    pub(crate) literal: bool,
    /// Drop the carriage return at the end of each line (CRLF).
    #[arg(long)]
    pub(crate) crlf: bool,
    /// Read a blank line as the empty key; by default blank lines are skipped.
    #[arg(long)]
    pub(crate) empty_key: bool,
}

/// The contents of a line. They limit its length: an input without newlines must not take all memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A key.
    Key,
    /// A key, or a key, a tab and a value.
    Entry,
    /// A JSON object with a key and a value.
    Json,
    /// A key that may look like anything else.
    Line,
    /// Text of at most this many bytes, which has a key in it.
    Text(usize),
}

impl LineFormat {
    /// The bytes of a part of a line, without its escapes.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Cow<'_, [u8]>> {
        self.arguments.decode_bytes(text).map_err(|failure| {
            Failure::Usage(format!("{failure}; without --escaped lines are used unchanged"))
        })
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
    pub(crate) fn skips(self, line: &[u8]) -> bool {
        !self.empty_key && (line.is_empty() || (self.crlf && line == b"\r"))
    }

    /// Refuses the beginning of a line as soon as no ending can make it valid.
    pub(crate) fn check_begun(self, content: Content, line: &[u8]) -> Result<()> {
        let unit = if self.arguments.escaped { ESCAPE_BYTES } else { 1 };
        let (key_max, value_max) = (unit * KEY_BYTES_MAX, unit * VALUE_BYTES_MAX);
        let json_max = JSON_ESCAPE_BYTES * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + JSON_FRAME_BYTES;
        // One byte more may be a carriage return.
        let is_over = |bytes_max: usize| line.len() > bytes_max + 1;
        let too_long = |what: &str, bytes_max: usize| {
            let line = excerpt(line);
            Err(Failure::Usage(format!("{what} {line} has more than {bytes_max} bytes, over the limit")))
        };
        match content {
            Content::Key | Content::Line if is_over(key_max) => too_long("the key", key_max),
            Content::Entry if is_over(key_max) && !line[..=key_max].contains(&b'\t') => {
                too_long("the key", key_max)
            }
            Content::Entry if is_over(key_max + 1 + value_max) => {
                too_long("the entry", key_max + 1 + value_max)
            }
            Content::Json if !line.starts_with(b"{") => {
                Err(Failure::Usage(format!("{} is not a JSON object", excerpt(line))))
            }
            Content::Json if is_over(json_max) => too_long("the entry", json_max),
            Content::Text(bytes_max) if is_over(bytes_max) => too_long("the line", bytes_max),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_refused_as_soon_as_it_can_only_be_too_long() {
        let plain = LineFormat::default();
        let escaped = LineFormat { arguments: Arguments { escaped: true }, ..plain };
        let refused = |format: LineFormat, content, line: &[u8]| format.check_begun(content, line).is_err();
        for (format, key_max) in [(plain, 65_536), (escaped, 262_144)] {
            for content in [Content::Key, Content::Line, Content::Entry] {
                assert!(!refused(format, content, &vec![0; key_max + 1]), "it may end with CRLF");
                assert!(refused(format, content, &vec![0; key_max + 2]));
            }
            let mut entry = vec![b'k'; key_max + 1000];
            entry[key_max] = b'\t';
            assert!(!refused(format, Content::Entry, &entry));
            assert!(refused(format, Content::Key, &entry));
        }
        assert!(refused(plain, Content::Json, &[0; 4]) && !refused(plain, Content::Json, b"{"));
        assert!(refused(plain, Content::Text(10), &[0; 12]) && !refused(plain, Content::Text(10), &[0; 11]));
    }
}
