//! Text that fits a number of columns: what is long goes on in the next line, or loses its middle.

use crate::escape::escape;

/// Stands where something was left out.
const ELLIPSIS: &str = "...";

/// `text` behind `first`, in as many lines as it takes: lines are broken behind commas, semicolons and colons, and those
/// after the first begin with `indent` spaces, which is at least as long as `first`.
pub(super) fn flow(first: &str, indent: usize, text: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), first.to_owned());
    let mut begun = false;
    for piece in pieces(text) {
        let piece = fit(piece.as_bytes(), columns.saturating_sub(indent));
        if begun && line.len() + 1 + piece.len() > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            begun = false;
        }
        if begun {
            line.push(' ');
        }
        line.push_str(&piece);
        begun = true;
    }
    lines.push(line);
    lines
}

/// What stays on one line.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match pieces.last_mut() {
            Some(piece) if !piece.ends_with([',', ';', ':']) => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// Bytes in at most `room` columns, escaped: their beginning and their end, if they are too long.
pub(super) fn fit(bytes: &[u8], room: usize) -> String {
    let text = escape(bytes);
    if text.len() <= room {
        return text;
    }
    let half = room.saturating_sub(ELLIPSIS.len()) / 2;
    let (first, last) = (fitting(bytes.iter(), half), fitting(bytes.iter().rev(), half));
    format!("{}{ELLIPSIS}{}", escape(&bytes[..first]), escape(&bytes[bytes.len() - last..]))
}

/// How many bytes, each of them whole, fit into `room` columns.
fn fitting<'b>(bytes: impl Iterator<Item = &'b u8>, room: usize) -> usize {
    let ends = bytes.scan(0, |end, &byte| {
        *end += escape(&[byte]).len();
        Some(*end)
    });
    ends.take_while(|&end| end <= room).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_the_parts_of_what_it_says() {
        let text = "level 1: 1 table, 400,299 keys, 20.3 MiB";
        assert_eq!(flow("", 2, text, 80), [text]);
        assert_eq!(flow("", 2, text, 30), ["level 1: 1 table,", "  400,299 keys, 20.3 MiB"]);
        assert_eq!(flow("logs ", 5, "a 1, b 2", 9), ["logs a 1,", "     b 2"]);
    }

    #[test]
    fn what_is_too_long_keeps_its_beginning_and_its_end_and_whole_escapes() {
        assert_eq!(fit(b"key00000", 8), "key00000");
        assert_eq!(fit(b"key000000001", 9), "key...001");
        for room in 3..40 {
            let text = fit(&[0xff; 30], room);
            assert!(text.len() <= room && text.replace("\\xff", "") == "...", "{room}: {text}");
        }
    }
}
