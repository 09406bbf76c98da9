//! The format of input lines:
//!
//! - A line is used unchanged; `--escaped` reads `\t`, `\n`, `\\` and `\xHH`.
//! - Blank lines are skipped and counted in a note; with `--empty-key` they are the empty key.
//! - A carriage return before the newline makes a line invalid; `--crlf` drops it.
//! - A line printed with `--json` is an error as a key or an entry.
//! - `--literal` accepts both; a note counts the carriage returns.

use std::borrow::Cow;

use sievedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::arguments::Arguments;
use crate::escape::excerpt;
use crate::failure::{Failure, Result};

const ESCAPE_BYTES: usize = 4;

const JSON_ESCAPE_BYTES: usize = 6;

const JSON_FRAME_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct LineFormat {
    #[command(flatten)]
    pub(crate) arguments: Arguments,
    /// Take each line unchanged, even with a carriage return at its end or printed with --json.
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
    Key,
    Entry,
    Json,
    Line,
    Text(usize),
}

impl LineFormat {
    pub(crate) fn decode(self, text: &[u8]) -> Result<Cow<'_, [u8]>> {
        self.arguments.decode_bytes(text).map_err(|failure| {
            Failure::Usage(format!("{failure}; without --escaped lines are used unchanged"))
        })
    }

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

    pub(crate) fn skips(self, line: &[u8]) -> bool {
        !self.empty_key && (line.is_empty() || (self.crlf && line == b"\r"))
    }

    pub(crate) fn refuses_end(self, line: &[u8]) -> bool {
        line.last() == Some(&b'\r') && !self.crlf && !self.literal
    }

    /// Refuses a beginning that no ending can make valid.
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
