//! The first 256 bytes of a filter block.
//!
//! ```text
//!   0  magic              8   89 53 56 46 4c 54 0d 0a                                            frozen
//!   8  format version    u16  1                                                                  frozen
//!  10  header length     u16  256; a multiple of 64, at most 4096                                frozen
//!  12  header checksum   u32  CRC-32 of (owner, offset 0, header without these four bytes)       frozen
//!  16  owner             16   file id of the table whose keys it holds                           frozen
//!  32  block length      u64  header, pages, body and padding; a multiple of 64                  frozen
//!  40  kind              u8   1 Bloom, 2 blocked Bloom, 3 ribbon
//!  41  domain            u8   0 whole user keys; 1 prefixes, 2 ranges reserved
//!  42  hash id           u8   1: XXH3-64 with the seed, then the table hash with the salt
//!  43  section count     u8   0 if the key count is 0; 1 for Bloom and blocked Bloom, 2 to 4 for ribbon
//!  44  required flags    u16  0; a reader must reject an unknown flag
//!  46  optional flags    u16  0; a reader may ignore an unknown flag
//!  48  seed              u64  of the hash of a user key
//!  56  salt              u64  of the table hash
//!  64  key count         u64  distinct user keys
//!  72  rate              u64  predicted false-positive rate in units of 2^-64
//!  80  size              u64  Bloom: bits, any number; blocked Bloom: lines of 64 bytes;
//!                             ribbon: slots of the last layer
//!  88  probes            u8   1 to 30; ribbon: 0
//!  89  column groups     3    ribbon: columns of each group, see `ribbon`; others: 0
//!  92  attempt           u16  ribbon: attempt at the last layer; others: 0
//!  94  reserved          2    0
//!  96  buckets           32   ribbon: four u64, the buckets of each bumped layer; others: 0
//! 128  sections          120  five of {offset u64, length u64, checksum u32, reserved u32 0}; unused ones 0
//! 248  plain blocks      u64  ribbon: the first block with an additional column; others: 0
//! ```
//!
//! Offsets are relative to the block.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use super::blocked::{Blocked, LINE_BITS};
use super::bloom::{Bloom, PROBES_MAX, rate_of};
use super::frozen::{self, FROZEN_BYTES, Frozen};
pub use super::frozen::{HEADER_BYTES_MAX, MAGIC, block_len, checksum, owner};
pub use super::layout::HEADER_BYTES;
use super::layout::{Layout, Shape};
use super::ribbon::{GROUPS_MAX, LAYERS_MAX, Ribbon};
pub use super::section::Section;
use super::section::checksums_len;
use crate::checksum::FileId;
use crate::codec::{DecodeError, Reader, put_u16, put_u32, put_u64};
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;
use crate::hash::HASH_ID;

/// The newest format version.
pub const FORMAT_VERSION: u16 = 1;

/// Domain of whole user keys.
pub const DOMAIN_WHOLE_KEY: u8 = 0;

const SECTIONS_MAX: usize = 5;
#[doc(hidden)]
pub const SECTION_BYTES: usize = 24;

/// The kind of a filter block. Append only: the numbers are on disk (format.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// Standard Bloom filter.
    Bloom = 1,
    /// Bloom filter in lines of 64 bytes.
    BlockedBloom = 2,
    /// Ribbon filter.
    Ribbon = 3,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 3] = [Self::Bloom, Self::BlockedBloom, Self::Ribbon];

    fn from_u8(kind: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == kind)
    }

    pub(crate) const fn has_columns(self) -> bool {
        match self {
            Self::Bloom | Self::BlockedBloom => false,
            Self::Ribbon => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bloom => "Bloom",
            Self::BlockedBloom => "blocked Bloom",
            Self::Ribbon => "ribbon",
        })
    }
}

/// The header of a filter block.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Filter kind.
    pub kind: Kind,
    /// [`DOMAIN_WHOLE_KEY`].
    pub domain: u8,
    /// Flags that a reader may ignore.
    pub optional_flags: u16,
    /// File id of the table.
    pub owner: FileId,
    /// Length of the block in bytes.
    pub block_len: u64,
    /// Seed of [`key_hash`](crate::hash::key_hash). It is a secret, stored in plain form: anyone who has it can choose
    /// colliding keys. Errors and `Debug` output omit seed and salt.
    pub seed: u64,
    /// Salt of [`table_hash`](crate::hash::table_hash).
    pub salt: u64,
    /// Distinct user keys.
    pub key_count: u64,
    /// False-positive rate in units of 2^-64.
    pub rate: u64,
    /// The number of bits, lines of 64 bytes, or slots of the last layer, depending on the kind. 0 without keys or
    /// bits.
    pub size: u64,
    /// Bits tested per query; 0 without keys and for ribbon filters.
    pub probes: u8,
    /// Columns of each group of a ribbon filter; 0 for other kinds.
    pub column_groups: [u8; GROUPS_MAX],
    /// Attempt at the last layer of a ribbon filter; 0 for other kinds.
    pub attempt: u16,
    /// Buckets of each bumped layer of a ribbon filter; 0 for other kinds.
    pub buckets: [u64; LAYERS_MAX],
    /// First block of a ribbon filter with an additional column; 0 for other kinds.
    pub plain_blocks: u64,
    /// The sections of the body.
    pub sections: Vec<Section>,
    /// The checksum of the header.
    pub checksum: u32,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("kind", &self.kind)
            .field("domain", &self.domain)
            .field("optional_flags", &self.optional_flags)
            .field("owner", &self.owner)
            .field("block_len", &self.block_len)
            .field("key_count", &self.key_count)
            .field("rate", &self.rate)
            .field("size", &self.size)
            .field("probes", &self.probes)
            .field("column_groups", &self.column_groups)
            .field("attempt", &self.attempt)
            .field("buckets", &self.buckets)
            .field("plain_blocks", &self.plain_blocks)
            .field("sections", &self.sections)
            .field("checksum", &self.checksum)
            .finish_non_exhaustive()
    }
}

impl Header {
    /// Bits without header, checksums and padding.
    #[must_use]
    pub fn bits(&self) -> u64 {
        match self.kind {
            Kind::Bloom => self.size,
            Kind::BlockedBloom => self.size.saturating_mul(LINE_BITS),
            Kind::Ribbon => self.sections.iter().map(|section| section.len.saturating_mul(8)).sum(),
        }
    }

    /// Whether this is a ribbon filter that could not be built and answers "maybe" for every key.
    #[must_use]
    pub fn answers_only_maybe(&self) -> bool {
        self.kind.has_columns() && self.key_count > 0 && self.size == 0
    }

    /// Length of the prefix with the first `sections` sections.
    #[must_use]
    pub fn prefix_len(&self, sections: usize) -> u64 {
        match self.sections.get(..sections).and_then(<[Section]>::last) {
            Some(last) if sections < self.sections.len() => (last.offset + last.len).next_multiple_of(64),
            _ => self.block_len,
        }
    }

    /// Number of column groups; the first group includes the thresholds. 1 for other kinds.
    #[must_use]
    pub fn column_group_count(&self) -> usize {
        if self.kind.has_columns() { self.sections.len().saturating_sub(1).max(1) } else { 1 }
    }

    /// Length of the prefix that a [`PagedFilter`](crate::PagedFilter) keeps in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn head_len(&self) -> u64 {
        match self.sections.first() {
            Some(thresholds) if self.kind.has_columns() => thresholds.offset + thresholds.len,
            _ => HEADER_BYTES as u64 + checksums_len(&self.sections),
        }
    }

    /// Length of the prefix with the first `column_groups` column groups.
    #[must_use]
    pub fn column_groups_len(&self, column_groups: usize) -> u64 {
        match column_groups {
            0 => 0,
            _ if column_groups < self.column_group_count() => self.prefix_len(1 + column_groups),
            _ => self.block_len,
        }
    }

    /// The rate of the first `column_groups` column groups.
    #[must_use]
    pub fn column_groups_rate(&self, column_groups: usize) -> f64 {
        match column_groups {
            0 => 1.0,
            _ if column_groups < self.column_group_count() => {
                (-f64::from(self.ribbon().columns(column_groups))).exp2()
            }
            _ => rate_of(self.rate),
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        put_u16(&mut out, FORMAT_VERSION);
        put_u16(&mut out, HEADER_BYTES as u16);
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.owner);
        put_u64(&mut out, self.block_len);
        out.extend_from_slice(&[self.kind as u8, self.domain, HASH_ID, self.sections.len() as u8]);
        put_u16(&mut out, 0);
        put_u16(&mut out, self.optional_flags);
        for field in [self.seed, self.salt, self.key_count, self.rate, self.size] {
            put_u64(&mut out, field);
        }
        out.push(self.probes);
        out.extend_from_slice(&self.column_groups);
        put_u16(&mut out, self.attempt);
        put_u16(&mut out, 0);
        self.buckets.into_iter().for_each(|buckets| put_u64(&mut out, buckets));
        for section in &self.sections {
            put_u64(&mut out, section.offset);
            put_u64(&mut out, section.len);
            put_u32(&mut out, section.checksum);
            put_u32(&mut out, 0);
        }
        out.resize(HEADER_BYTES - 8, 0);
        put_u64(&mut out, self.plain_blocks);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        frozen::seal(&mut header, &self.owner);
        header
    }

    /// Decodes a header. Verifies magic, length, checksum, version, required flags, kind, domain, hash id and the rest,
    /// in this order.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the header is intact and has an unknown feature, otherwise `Corrupt`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let frozen = Frozen::verified(bytes)?;
        known(8, "filter format version", frozen.version.into(), FORMAT_VERSION.into())?;
        let mut reader = Reader::new(frozen.header);
        reader.bytes(FROZEN_BYTES, "filter header")?;
        let kind = reader.u8("filter kind")?;
        let domain = reader.u8("filter domain")?;
        let hash_id = reader.u8("filter hash id")?;
        let section_count = reader.u8("filter section count")?;
        known(44, "filter required flags", reader.u16("filter required flags")?.into(), 0)?;
        let Some(kind) = Kind::from_u8(kind) else {
            let newest = Kind::ALL.map(|kind| kind as u64).into_iter().max().unwrap_or(0);
            return Err(DecodeError::unsupported(40, "filter kind", kind.into(), newest));
        };
        known(41, "filter domain", domain.into(), DOMAIN_WHOLE_KEY.into())?;
        known(42, "filter hash id", hash_id.into(), HASH_ID.into())?;
        // Another kind may have a longer header.
        if frozen.header.len() != HEADER_BYTES {
            let detail = format!("expected {HEADER_BYTES}, found {}", frozen.header.len());
            return Err(DecodeError::corrupt(10, "filter header length", detail));
        }
        let mut header = Self {
            kind,
            domain,
            optional_flags: reader.u16("filter optional flags")?,
            owner: frozen.owner,
            block_len: frozen.block_len,
            seed: reader.u64("filter seed")?,
            salt: reader.u64("filter salt")?,
            key_count: reader.u64("filter key count")?,
            rate: reader.u64("filter rate")?,
            size: reader.u64("filter size")?,
            probes: reader.u8("filter probes")?,
            column_groups: reader.array("filter column groups")?,
            attempt: reader.u16("filter attempt")?,
            buckets: [0; LAYERS_MAX],
            plain_blocks: 0,
            sections: Vec::new(),
            checksum: frozen.checksum,
        };
        reader.zeros(2, "filter header reserved bytes")?;
        for buckets in &mut header.buckets {
            *buckets = reader.u64("filter buckets")?;
        }
        header.sections = decode_sections(&mut reader, section_count)?;
        header.plain_blocks = reader.u64("filter plain blocks")?;
        header.check_layout(header.shape()?)?;
        Ok(header)
    }

    pub(super) fn shape(&self) -> Result<Shape, DecodeError> {
        let (size, probes) = (self.size, self.probes);
        let ribbon = self.ribbon();
        if self.key_count == 0 {
            if (size, probes, self.rate, ribbon) != (0, 0, 0, Ribbon::MAYBE) {
                return Err(DecodeError::corrupt(64, "filter key count", "is 0, but there are parameters"));
            }
            return Ok(Shape::Empty);
        }
        if self.kind.has_columns() {
            if probes != 0 {
                return Err(DecodeError::corrupt(88, "filter probes", format!("expected 0, found {probes}")));
            }
            ribbon.check().map_err(|detail| DecodeError::corrupt(80, "ribbon parameters", detail))?;
            return Ok(Shape::Ribbon(ribbon));
        }
        if ribbon != (Ribbon { slots: size, ..Ribbon::MAYBE }) {
            return Err(DecodeError::corrupt(89, "filter header reserved bytes", "are not zero"));
        }
        if probes == 0 || probes > PROBES_MAX {
            let detail = format!("expected 1 to {PROBES_MAX}, found {probes}");
            return Err(DecodeError::corrupt(88, "filter probes", detail));
        }
        if size == 0 {
            return Err(DecodeError::corrupt(80, "filter size", "is 0, but there are keys"));
        }
        Ok(match self.kind {
            Kind::Bloom => Shape::Bloom(Bloom { bits: size, probes }),
            Kind::BlockedBloom | Kind::Ribbon => Shape::Blocked(Blocked { lines: size, probes }),
        })
    }

    fn ribbon(&self) -> Ribbon {
        Ribbon {
            buckets: self.buckets,
            slots: self.size,
            groups: self.column_groups,
            plain: self.plain_blocks,
            attempt: self.attempt,
        }
    }

    fn check_layout(&self, shape: Shape) -> Result<(), DecodeError> {
        let lens: Vec<u64> = self.sections.iter().map(|section| section.len).collect();
        let expected = shape.section_lens().unwrap_or_default();
        let count = lens.len();
        if count != expected.len() && (shape == Shape::Empty || !expected.is_empty()) {
            let detail = format!("expected {}, found {count}", expected.len());
            return Err(DecodeError::corrupt(43, "filter section count", detail));
        }
        let differs = (0..count).find(|&index| expected.get(index) != Some(&lens[index]));
        if let Some(index) = differs {
            let detail = format!("{} bytes do not agree with the parameters", lens[index]);
            return Err(DecodeError::corrupt(136 + 24 * index as u64, "filter section length", detail));
        }
        let Some(layout) = Layout::of(&lens) else {
            return Err(DecodeError::corrupt(
                136,
                "filter section length",
                "the block would exceed 2^64 bytes",
            ));
        };
        if let Some(index) = (0..count).find(|&index| self.sections[index].offset != layout.offsets[index]) {
            let (found, expected) = (self.sections[index].offset, layout.offsets[index]);
            let detail = format!("expected {expected}, found {found}");
            return Err(DecodeError::corrupt(128 + 24 * index as u64, "filter section offset", detail));
        }
        if self.block_len != layout.block_len {
            let detail = format!("expected {}, found {}", layout.block_len, self.block_len);
            return Err(DecodeError::corrupt(32, "filter block length", detail));
        }
        Ok(())
    }
}

fn known(offset: u64, what: &'static str, found: u64, supported: u64) -> Result<(), DecodeError> {
    if found == supported {
        return Ok(());
    }
    Err(DecodeError::unsupported(offset, what, found, supported))
}

fn decode_sections(reader: &mut Reader<'_>, count: u8) -> Result<Vec<Section>, DecodeError> {
    let count = usize::from(count);
    if count > SECTIONS_MAX {
        let detail = format!("expected at most {SECTIONS_MAX}, found {count}");
        return Err(DecodeError::corrupt(43, "filter section count", detail));
    }
    let mut sections = Vec::with_capacity(count);
    for _ in 0..count {
        let offset = reader.u64("filter section offset")?;
        let len = reader.u64("filter section length")?;
        let checksum = reader.u32("filter section checksum")?;
        reader.zeros(4, "filter section reserved bytes")?;
        sections.push(Section { offset, len, checksum });
    }
    reader.zeros((SECTIONS_MAX - count) * SECTION_BYTES, "unused filter sections")?;
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::super::frozen::tests::reseal;
    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Bloom,
            domain: 0,
            optional_flags: 0,
            owner: [4; 16],
            block_len: 320 + 8192,
            seed: 1,
            salt: 2,
            key_count: 6000,
            rate: 5,
            size: 65_536,
            probes: 7,
            column_groups: [0; 3],
            attempt: 0,
            buckets: [0; 4],
            plain_blocks: 0,
            sections: vec![Section { offset: 320, len: 8192, checksum: 9 }],
            checksum: 0,
        }
    }

    #[test]
    fn a_header_comes_back() {
        let bytes = header().encode();
        let back = Header::decode(&bytes).unwrap();
        assert_eq!(checksum(&bytes), Ok(back.checksum));
        assert_eq!(Header { checksum: 0, ..back }, header());
        assert_eq!(block_len(&bytes), Ok(320 + 8192));
    }

    #[test]
    fn seed_and_salt_are_not_printed() {
        let header = Header { seed: 0x5eed_5eed, salt: 0x5a17_5a17, ..header() };
        let mut builder =
            crate::FilterBuilder::new(Kind::Bloom, 10.0, header.seed, header.salt, [4; 16]).unwrap();
        builder.add_key(b"apple");
        let block = builder.clone().finish().unwrap();
        let filter = crate::Filter::open(&block[..], crate::Expect::anything()).unwrap();
        let (paged, probe) = (
            crate::PagedFilter::open(vec![block.clone()], block.len() as u64, crate::Expect::anything()),
            filter.probe(),
        );
        for text in [
            format!("{header:?}"),
            format!("{builder:?}"),
            format!("{filter:?}"),
            format!("{paged:?}"),
            format!("{probe:?}"),
        ] {
            assert!(
                !text.contains(&header.seed.to_string()) && !text.contains(&header.salt.to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn the_block_of_a_newer_version_can_be_stepped_over_but_not_read() {
        let mut bytes = header().encode()[..64].to_vec();
        bytes[8] = 2;
        bytes[10..12].copy_from_slice(&64u16.to_le_bytes());
        reseal(&mut bytes);
        assert_eq!(block_len(&bytes), Ok(320 + 8192));
        let error = Header::decode(&bytes).unwrap_err();
        assert_eq!(error, DecodeError::unsupported(8, "filter format version", 2, 1));
    }

    #[test]
    fn another_kind_may_have_a_longer_header_and_the_known_ones_may_not() {
        let mut bytes = header().encode().to_vec();
        bytes.extend_from_slice(&[0; 64]);
        bytes[10..12].copy_from_slice(&320u16.to_le_bytes());
        reseal(&mut bytes);
        assert_eq!(Header::decode(&bytes).unwrap_err().what, "filter header length");
        bytes[40] = 4;
        reseal(&mut bytes);
        assert_eq!(Header::decode(&bytes), Err(DecodeError::unsupported(40, "filter kind", 4, 3)));
    }

    #[test]
    fn the_length_of_a_damaged_or_truncated_header_is_not_believed() {
        let good = header().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(block_len(&bad).is_err(), "bit {bit}");
        }
        for len in 0..HEADER_BYTES {
            assert!(block_len(&good[..len]).is_err(), "{len}");
        }
        for wrong in [0u64, 192, 4097, u64::MAX] {
            let mut bad = good;
            bad[32..40].copy_from_slice(&wrong.to_le_bytes());
            reseal(&mut bad);
            assert_eq!(block_len(&bad).unwrap_err().what, "filter block length");
        }
    }
}
