//! Bytes as text: [`escape`] prints them, [`unescape`] reads them back.
//!
//! | bytes | printed |
//! |---|---|
//! | tab, newline, backslash | `\t`, `\n`, `\\` |
//! | other control and invisible characters, invalid UTF-8 | `\x` and two hex digits for each byte |
//! | all other UTF-8 | unchanged |
//!
//! The output contains neither tabs nor newlines. [`unescape`] accepts digits in either case.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

pub(crate) use sievedb::inspect::escape;

use crate::units::counted;

pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Writes in pieces, so that a long value needs little memory.
pub(crate) fn write_escaped(bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(piece_len(rest));
        to.write_all(escape(piece).as_bytes())?;
        rest = behind;
    }
    Ok(())
}

/// Pieces end between characters: a character has at most three bytes after its first.
fn piece_len(bytes: &[u8]) -> usize {
    if bytes.len() <= PIECE_BYTES {
        return bytes.len();
    }
    let begins = |at: &usize| !matches!(bytes[*at], 0x80..0xc0);
    (PIECE_BYTES - 3..=PIECE_BYTES).rev().find(begins).unwrap_or(PIECE_BYTES)
}

const EXCERPT_BYTES: usize = 40;

pub(crate) fn excerpt(bytes: &[u8]) -> String {
    match bytes.get(..EXCERPT_BYTES) {
        Some(first) if bytes.len() > EXCERPT_BYTES => format!("\"{}\"...", escape(first)),
        _ => format!("\"{}\"", escape(bytes)),
    }
}

/// Shortens a long key to its first bytes and its length.
pub(crate) fn shortened(key: &[u8]) -> String {
    match key.get(..EXCERPT_BYTES) {
        Some(first) if key.len() > EXCERPT_BYTES => {
            format!("{}... ({})", escape(first), counted(key.len() as u64, "byte", "bytes"))
        }
        _ => escape(key),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn printable(text: &str) -> String {
    text.split('\\').map(|part| escape(part.as_bytes())).collect::<Vec<_>>().join("\\")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadEscape {
    pub(crate) offset: usize,
}

impl fmt::Display for BadEscape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the backslash at byte {} begins none of \\t \\n \\\\ \\xHH", self.offset + 1)
    }
}

pub(crate) fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, BadEscape> {
    let Some(first) = text.iter().position(|&byte| byte == b'\\') else { return Ok(Cow::Borrowed(text)) };
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut offset = first;
    while let Some(&byte) = text.get(offset) {
        let (value, len) = match text[offset..] {
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', b'x', high, low, ..] => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => return Err(BadEscape { offset }),
            },
            [b'\\', ..] => return Err(BadEscape { offset }),
            _ => (byte, 1),
        };
        out.push(value);
        offset += len;
    }
    Ok(Cow::Owned(out))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@%,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    if cfg!(windows) { format!("\"{word}\"") } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_printed_on_one_line_and_in_one_column_and_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        let printed = escape(&all);
        assert!(printed.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
        assert_eq!(unescape(printed.as_bytes()).unwrap(), &all[..]);
        for byte in all {
            assert_eq!(unescape(escape(&[byte]).as_bytes()).unwrap(), &[byte][..]);
        }
        assert_eq!(escape(b"a\tb\nc\\d\r\xff"), "a\\tb\\nc\\\\d\\x0d\\xff");
        assert_eq!(unescape(b"\\xfF").unwrap(), &b"\xff"[..]);
    }

    #[test]
    fn text_is_printed_as_it_is_and_what_hides_or_moves_the_cursor_is_not() {
        assert_eq!(escape("größe 漢字 🦀".as_bytes()), "größe 漢字 🦀");
        // A truncated character is invalid UTF-8, on either side.
        assert_eq!(escape(b"\xc3\xbc\xc3x\xbc"), "ü\\xc3x\\xbc");
        assert_eq!(escape("\u{85}\u{7f}\u{1b}".as_bytes()), "\\xc2\\x85\\x7f\\x1b");
        for hidden in ["\u{2028}", "\u{202e}", "\u{2066}", "\u{200f}", "\u{feff}"] {
            assert!(escape(hidden.as_bytes()).is_ascii(), "{hidden:?}");
        }
    }

    #[test]
    fn every_character_is_read_back() {
        for char in '\0'..=char::MAX {
            let text = char.to_string();
            let printed = escape(text.as_bytes());
            assert_eq!(unescape(printed.as_bytes()).unwrap(), text.as_bytes());
            assert!(printed.lines().count() == 1 && !printed.contains('\t'), "{char:?}");
        }
    }

    #[test]
    fn nothing_in_a_message_moves_the_cursor() {
        assert_eq!(printable("größe\t\\ \u{1b}[2J\n\u{9b}x\r"), "größe\\t\\ \\x1b[2J\\n\\xc2\\x9bx\\x0d");
    }

    #[test]
    fn pieces_are_printed_like_the_whole() {
        for pattern in ["a", "ü", "漢", "🦀", "\u{202e}"].map(str::as_bytes).into_iter().chain([
            &b"\xff"[..],
            b"\x80",
            b"\xe6\xbc",
            b"\xf0\x9f\xa6",
            b"\xf0\x9f\xa6\x80\x80\x80",
            b"\t\\\n",
        ]) {
            for shift in 0..5 {
                let mut bytes = vec![b'.'; shift];
                bytes.extend(pattern.iter().cycle().take(2 * PIECE_BYTES + 7));
                let mut printed = Vec::new();
                write_escaped(&bytes, &mut printed).unwrap();
                assert!(printed == escape(&bytes).as_bytes(), "{pattern:?}, {shift}");
            }
        }
    }

    #[test]
    fn an_excerpt_has_at_most_forty_bytes() {
        assert_eq!(excerpt(b"k"), "\"k\"");
        assert_eq!(excerpt(&[b'k'; 40]), format!("\"{}\"", "k".repeat(40)));
        assert_eq!(excerpt(&[b'k'; 41]), format!("\"{}\"...", "k".repeat(40)));
    }

    #[test]
    fn a_long_key_is_shortened_to_its_beginning_and_its_length() {
        assert_eq!(shortened(&[b'\t'; 40]), "\\t".repeat(40));
        assert_eq!(shortened(&[0xff; 1041]), format!("{}... (1,041 bytes)", "\\xff".repeat(40)));
    }

    #[test]
    fn a_backslash_that_means_nothing_is_refused_with_its_offset() {
        for (text, offset) in
            [("\\", 0), ("ab\\", 2), ("\\\\\\", 2), ("\\q", 0), ("\\x", 0), ("a\\x1", 1), ("\\t\\xg0", 2)]
        {
            assert_eq!(unescape(text.as_bytes()), Err(BadEscape { offset }), "{text}");
        }
    }
}
