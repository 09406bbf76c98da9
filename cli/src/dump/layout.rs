//! Text for a number of terminal columns: wrapped, or shortened in the middle.

use textwrap::core::Word;
use textwrap::wrap_algorithms::wrap_first_fit;
use unicode_width::UnicodeWidthStr;

use crate::escape::escape;

const ELLIPSIS: &str = "...";

pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `first`, then `text`, broken after commas, semicolons and colons. `indent` of later lines is at least the width of `first`.
pub(super) fn flow(first: &str, indent: usize, text: &str, columns: usize) -> Vec<String> {
    let room = columns.saturating_sub(indent);
    let fitted = |piece: String| fit(piece.as_bytes(), room) + " ";
    let pieces: Vec<String> = unbroken(text).into_iter().map(fitted).collect();
    let words: Vec<Word<'_>> = pieces.iter().map(|piece| Word::from(piece)).collect();
    let rooms = [columns.saturating_sub(width(first)), room].map(|room| room as f64);
    let lines = wrap_first_fit(&words, &rooms).into_iter().enumerate();
    let join = |words: &[Word<'_>]| words.iter().map(|word| word.word).collect::<Vec<_>>().join(" ");
    let start = |line| if line == 0 { first.to_owned() } else { " ".repeat(indent) };
    lines.map(|(line, words)| start(line) + &join(words)).collect()
}

fn unbroken(text: &str) -> Vec<String> {
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

pub(super) fn fit(bytes: &[u8], room: usize) -> String {
    let text = escape(bytes);
    if width(&text) <= room {
        return text;
    }
    let half = room.saturating_sub(ELLIPSIS.len()) / 2;
    let characters = characters(bytes);
    let mut first = fitting(characters.iter(), half);
    first.push(ELLIPSIS);
    let mut last = fitting(characters.iter().rev(), half);
    last.reverse();
    first.extend(last);
    first.concat()
}

fn characters(bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    for chunk in bytes.utf8_chunks() {
        all.extend(chunk.valid().chars().map(|char| escape(char.encode_utf8(&mut [0; 4]).as_bytes())));
        all.extend(chunk.invalid().iter().map(|&byte| escape(&[byte])));
    }
    all
}

fn fitting<'c>(characters: impl Iterator<Item = &'c String>, room: usize) -> Vec<&'c str> {
    let mut columns = 0;
    let fits = |character: &&'c str| {
        columns += width(character);
        columns <= room
    };
    characters.map(String::as_str).take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_after_punctuation() {
        let text = "level 1: 1 table, 400,299 keys, 20.3 MiB";
        assert_eq!(flow("", 2, text, 80), [text]);
        assert_eq!(flow("", 2, text, 30), ["level 1: 1 table,", "  400,299 keys, 20.3 MiB"]);
        assert_eq!(flow("logs ", 5, "a 1, b 2", 9), ["logs a 1,", "     b 2"]);
    }

    #[test]
    fn a_text_that_is_too_long_keeps_its_beginning_and_its_end_and_whole_escapes() {
        assert_eq!(fit(b"key00000", 8), "key00000");
        assert_eq!(fit(b"key000000001", 9), "key...001");
        for room in 3..40 {
            let text = fit(&[0xff; 30], room);
            assert!(text.len() <= room && text.replace("\\xff", "") == "...", "{room}: {text}");
            let text = fit("漢".repeat(30).as_bytes(), room);
            assert!(width(&text) <= room && text.replace('漢', "") == "...", "{room}: {text}");
        }
        assert_eq!(fit("größe".as_bytes(), 5), "größe");
    }
}
