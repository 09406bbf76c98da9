//! The vectors of `format-vectors.md`, for format tests.
//!
//! ```text
//! vector   a code block that opens with "vector" and its name
//!          key = value            facts, in order; keys may repeat
//!          bytes:
//!          89 53 ..               hex, sixteen per line
//!          00 * 4032              a byte, and the number of repetitions
//! ```
//!
//! A failed [`Vector::assert_is`] prints the vector of the code.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::fmt::Write;

use crate::checksum::FileId;

/// The specification.
pub const DOCUMENT: &str = include_str!("../format.md");

const VECTORS: &str = include_str!("../format-vectors.md");

const OPENING: &str = "```vector ";

/// More than this many equal lines of one byte become one line.
const ROW_LINES_MAX: usize = 8;

#[derive(Debug)]
pub struct Vector {
    pub name: &'static str,
    pub facts: Vec<(&'static str, &'static str)>,
    pub bytes: Vec<u8>,
}

impl Vector {
    pub fn all() -> Vec<Self> {
        Self::all_of(VECTORS)
    }

    /// The vectors of another document.
    pub fn all_of(document: &'static str) -> Vec<Self> {
        document.split(OPENING).skip(1).map(Self::parse).collect()
    }

    fn parse(text: &'static str) -> Self {
        let (body, _) = text.split_once("```").expect("the end of the vector");
        let (name, body) = body.split_once('\n').expect("its name");
        let (facts, bytes) = body.split_once("bytes:\n").unwrap_or_else(|| panic!("{name} has no bytes"));
        let fact = |line: &'static str| line.split_once(" = ").unwrap_or_else(|| panic!("{name}: {line}"));
        Self {
            name,
            facts: facts.lines().map(fact).collect(),
            bytes: bytes.lines().flat_map(unhex_line).collect(),
        }
    }

    /// The values of a fact.
    pub fn facts(&self, key: &str) -> impl Iterator<Item = &'static str> {
        self.facts.iter().filter(move |fact| fact.0 == key).map(|fact| fact.1)
    }

    /// The value of the only fact `key`.
    pub fn fact(&self, key: &str) -> &'static str {
        let mut values = self.facts(key);
        let value = values.next().unwrap_or_else(|| panic!("{} has no {key}", self.name));
        assert!(values.next().is_none(), "{} has {key} twice", self.name);
        value
    }

    pub fn number(&self, key: &str) -> u64 {
        self.fact(key).parse().expect("a decimal number")
    }

    pub fn id(&self, key: &str) -> FileId {
        unhex(self.fact(key)).try_into().expect("an id of 16 bytes")
    }

    pub fn assert_is(&self, facts: &[(&str, String)], bytes: &[u8]) {
        let same = self.facts.len() == facts.len()
            && self.facts.iter().zip(facts).all(|(known, made)| (known.0, known.1) == (made.0, &made.1));
        assert!(same && self.bytes == bytes, "the code has\n{}", render(self.name, facts, bytes));
    }
}

fn render(name: &str, facts: &[(&str, String)], bytes: &[u8]) -> String {
    let mut out = format!("{OPENING}{name}\n");
    facts.iter().for_each(|(key, value)| writeln!(out, "{key} = {value}").unwrap());
    out.push_str("bytes:\n");
    let lines: Vec<_> = bytes.chunks(16).collect();
    for same in lines.chunk_by(|line, next| line == next) {
        let first = same[0][0];
        if same.len() > ROW_LINES_MAX && same[0].iter().all(|&byte| byte == first) {
            writeln!(out, "{first:02x} * {}", 16 * same.len()).unwrap();
            continue;
        }
        for line in same {
            let line: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "{}", line.join(" ")).unwrap();
        }
    }
    out.push_str("```\n");
    out
}

fn unhex_line(line: &str) -> Vec<u8> {
    match line.split_once(" * ") {
        Some((byte, times)) => unhex(byte).repeat(times.parse().expect("a decimal number")),
        None => unhex(line),
    }
}

/// Bytes as hex, `-` if there are none.
pub fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

/// The inverse of [`hex`]; ignores spaces.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text:?}");
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}
