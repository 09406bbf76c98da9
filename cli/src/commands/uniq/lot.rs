//! A lot of lines with their keys.

use std::borrow::Cow;

use super::Args;
use super::stages::{Filled, Size};
use crate::arguments::check_limits;
use crate::failure::Result;
use crate::line_key::LineKey;
use crate::lines::Lines;

/// Lines and keys in one text. A key that is not a part of its line follows it.
#[derive(Default)]
pub(super) struct Lot {
    text: Vec<u8>,
    lines: Vec<Line>,
    /// The position in the input after the last line.
    pub(super) position: u64,
}

/// Ends of a line and its key; a text has less than 4 GiB.
struct Line {
    start: u32,
    end: u32,
    key_start: u32,
    key_end: u32,
}

impl Size for Lot {
    fn lines(&self) -> usize {
        self.lines.len()
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }
}

impl Lot {
    pub(super) fn fill(&mut self, lines: &mut Lines, args: &Args) -> Result<Filled> {
        let Some(line) = lines.next()? else { return Ok(Filled::End) };
        if let Err(failure) = self.push(line, args) {
            lines.refuse(failure)?;
        }
        self.position = lines.position();
        Ok(if lines.waits_for_more() { Filled::Waits } else { Filled::More })
    }

    fn push(&mut self, line: &[u8], args: &Args) -> Result<()> {
        let part = LineKey::of(args.key.as_ref(), line)?;
        let part = if args.trim { trimmed(part) } else { part };
        if args.trim && args.lines.skips(part) {
            return Ok(());
        }
        let key = args.lines.decode(part)?;
        check_limits(&key, b"")?;
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        let end = self.text.len();
        let key_start = match &key {
            // The key is a part of its line.
            Cow::Borrowed(_) => start + (part.as_ptr() as usize - line.as_ptr() as usize),
            Cow::Owned(key) => {
                self.text.extend_from_slice(key);
                end
            }
        };
        let [start, end, key_start, key_end] =
            [start, end, key_start, key_start + key.len()].map(|place| place as u32);
        self.lines.push(Line { start, end, key_start, key_end });
        Ok(())
    }

    pub(super) fn key(&self, number: u32) -> &[u8] {
        let Line { key_start, key_end, .. } = self.lines[number as usize];
        &self.text[key_start as usize..key_end as usize]
    }

    pub(super) fn keys(&self, order: &[u32]) -> impl Iterator<Item = &[u8]> {
        order.iter().map(|&number| self.key(number))
    }

    /// The numbers of the lines in the order of keys; equal keys in the order of the input.
    pub(super) fn order(&self) -> Vec<u32> {
        let numbers = 0..self.lines.len() as u32;
        let first = numbers.clone().next().map_or(&[][..], |first| self.key(first));
        let same = |key: &[u8]| first.iter().zip(key).take_while(|(one, other)| one == other).count();
        let same = numbers.clone().map(|number| same(self.key(number))).min().unwrap_or(0);
        // Most keys differ in the eight bytes after their common prefix.
        let head = |number| {
            let rest = self.key(number)[same..].iter().copied().chain(std::iter::repeat(0));
            (rest.take(8).fold(0_u64, |head, byte| head << 8 | u64::from(byte)), number)
        };
        let mut heads: Vec<(u64, u32)> = numbers.map(head).collect();
        heads.sort_unstable_by(|(head, number), (other_head, other)| {
            let by_key = || self.key(*number).cmp(self.key(*other));
            head.cmp(other_head).then_with(by_key).then_with(|| number.cmp(other))
        });
        heads.into_iter().map(|(_, number)| number).collect()
    }

    pub(super) fn answered(&self, new: &[bool]) -> impl Iterator<Item = (&[u8], bool)> {
        let text = |line: &Line| &self.text[line.start as usize..line.end as usize];
        self.lines.iter().zip(new).map(move |(line, &is_new)| (text(line), is_new))
    }
}

/// Reorders answers from the order of keys to the order of lines.
pub(super) fn by_line(order: &[u32], answers: impl IntoIterator<Item = bool>) -> Vec<bool> {
    let mut by_line = vec![false; order.len()];
    order.iter().zip(answers).for_each(|(&number, answer)| by_line[number as usize] = answer);
    by_line
}

fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ordered_by_their_keys_and_equal_keys_by_their_lines() {
        for same in ["", "https://example.org/"] {
            let mut lot = Lot::default();
            for number in 0..2000_u32 {
                let mixed = number.wrapping_mul(0x9e37_79b9);
                // Repeated keys of 0 to 11 letters, some with zeros at their ends.
                let letters = (0..mixed >> 28).map(|at| char::from((mixed >> (2 * at) & 3) as u8 * 40));
                let key: String = same.chars().chain(letters.take(11)).collect();
                let start = lot.text.len() as u32;
                lot.text.extend_from_slice(key.as_bytes());
                let end = lot.text.len() as u32;
                lot.lines.push(Line { start, end, key_start: start, key_end: end });
            }
            let mut expected: Vec<u32> = (0..2000).collect();
            expected.sort_by_key(|&number| lot.key(number));
            let order = lot.order();
            assert_eq!(order, expected);
            let answers = by_line(&order, order.iter().map(|number| number % 3 == 0));
            assert!(answers.into_iter().eq((0..2000).map(|number| number % 3 == 0)));
        }
        assert!(Lot::default().order().is_empty());
    }
}
