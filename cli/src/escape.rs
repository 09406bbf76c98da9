//! Keys and values are bytes; a terminal, a line and a column are not. This is how the one becomes the other.
//!
//! | byte | printed |
//! |---|---|
//! | tab | `\t` |
//! | newline | `\n` |
//! | backslash | `\\` |
//! | any other that is not printable ASCII (0x20 to 0x7e) | `\x` and two hexadecimal digits |
//!
//! Printing is a bijection: what is printed holds no tab and no newline, and [`unescape`] gives back the same
//! bytes. Reading takes exactly these four forms, digits in either case; every other byte stands for itself.

use std::borrow::Cow;
use std::fmt;

/// Appends `bytes` as printable ASCII.
pub(crate) fn escape_into(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(byte),
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(&[b'\\', b'x', HEX[high], HEX[low]]);
            }
        }
    }
}

/// `bytes` as printable ASCII.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(bytes, &mut out);
    out.into_iter().map(char::from).collect()
}

/// A name or a message for people: like [`escape`], but printable text stays, whatever its script, and backslashes too.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char.is_control() {
            true => out.push_str(&escape(char.encode_utf8(&mut [0; 4]).as_bytes())),
            false => out.push(char),
        }
    }
    out
}

/// A backslash that does not begin an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadEscape {
    /// Where the backslash is, counted in bytes from 0.
    pub(crate) position: usize,
}

impl fmt::Display for BadEscape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the backslash at byte {} begins none of \\t \\n \\\\ \\xHH", self.position + 1)
    }
}

/// The bytes that `text` stands for.
pub(crate) fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, BadEscape> {
    let Some(first) = text.iter().position(|&byte| byte == b'\\') else { return Ok(Cow::Borrowed(text)) };
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut position = first;
    while let Some(&byte) = text.get(position) {
        let rest = &text[position..];
        let (value, len) = match rest {
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', b'x', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => return Err(BadEscape { position }),
            },
            [b'\\', ..] => return Err(BadEscape { position }),
            _ => (byte, 1),
        };
        out.push(value);
        position += len;
    }
    Ok(Cow::Owned(out))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_and_is_printed_on_one_line_and_in_one_column() {
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
    fn nothing_in_a_message_moves_the_cursor() {
        assert_eq!(visible("größe\t\\ \u{1b}[2J\n\u{9b}x\r"), "größe\\t\\ \\x1b[2J\\n\\xc2\\x9bx\\x0d");
    }

    #[test]
    fn a_backslash_that_means_nothing_is_refused_where_it_stands() {
        for (text, position) in
            [("\\", 0), ("ab\\", 2), ("\\\\\\", 2), ("\\q", 0), ("\\x", 0), ("a\\x1", 1), ("\\t\\xg0", 2)]
        {
            assert_eq!(unescape(text.as_bytes()), Err(BadEscape { position }), "{text}");
        }
    }
}
