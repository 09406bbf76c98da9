//! The content of a file, by checksum and length. It is the file's name in the repository. The checksum is XXH3-128,
//! which detects accidents but not forgeries. CRC-32s of parts of 1 MiB locate damage.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// Fixed by the format.
pub(crate) const PART_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Content {
    pub(crate) checksum: [u8; 16],
    pub(crate) len: u64,
}

impl Content {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (checksum, len) = name.split_once('-')?;
        let checksum = u128::from_str_radix(checksum, 16).ok()?.to_be_bytes();
        let content = Self { checksum, len: len.parse().ok()? };
        (content.to_string() == name).then_some(content)
    }

    pub(crate) fn parts(&self) -> u64 {
        self.len.div_ceil(PART_BYTES)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}", u128::from_be_bytes(self.checksum), self.len)
    }
}

pub(crate) struct Sums {
    hash: Xxh3,
    len: u64,
    parts: Vec<u32>,
}

impl Sums {
    pub(crate) fn new() -> Self {
        Self { hash: Xxh3::new(), len: 0, parts: Vec::new() }
    }

    pub(crate) fn add(&mut self, part: &[u8]) -> u32 {
        self.hash.update(part);
        self.len += part.len() as u64;
        let sum = crc32fast::hash(part);
        self.parts.push(sum);
        sum
    }

    pub(crate) fn finish(self) -> (Content, Vec<u32>) {
        (Content { checksum: self.hash.digest128().to_be_bytes(), len: self.len }, self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_checksum_in_hex_and_the_length() {
        let mut sums = Sums::new();
        sums.add(b"abc");
        let (content, parts) = sums.finish();
        // XXH128 of `abc` with seed 0, and its CRC-32.
        assert_eq!(content.to_string(), "06b05ab6733a618578af5f94892f3950-3");
        assert_eq!(parts, [0x3524_41c2]);
        assert_eq!(Content::parse(&content.to_string()), Some(content));
    }

    #[test]
    fn any_other_name_is_refused() {
        let hex = "06b05ab6733a618578af5f94892f3950";
        assert!(Content::parse(&format!("{hex}-3")).is_some());
        for bad in ["", "-", "-3", hex, &hex[1..], "../x-3"] {
            assert_eq!(Content::parse(bad), None, "{bad}");
        }
        for bad in ["", "+3", "03", "-3", "3-", "18446744073709551616", "x"] {
            assert_eq!(Content::parse(&format!("{hex}-{bad}")), None, "{bad}");
        }
        assert_eq!(Content::parse(&format!("{}-3", hex.to_uppercase())), None);
        assert_eq!(Content::parse(&format!("+{}-3", &hex[1..])), None);
    }
}
