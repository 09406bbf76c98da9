//! The first 256 bytes of a filter block, from which everything else in it is found.
//!
//! ```text
//!   0  magic              8   89 53 56 46 4c 54 0d 0a                                            frozen
//!   8  format version    u16  1                                                                  frozen
//!  10  header length     u16  256; a multiple of 64, at most 4096                                frozen
//!  12  header checksum   u32  CRC-32 of (owner, offset 0, header without these four bytes)       frozen
//!  16  owner             16   file id of the table whose keys it holds                           frozen
//!  32  block length      u64  header, pages, body and padding; a multiple of 64                  frozen
//!  40  kind              u8   1 Bloom, 2 blocked Bloom; 3 ribbon reserved
//!  41  domain            u8   0 whole user keys; 1 prefixes, 2 ranges reserved
//!  42  hash id           u8   1: XXH3-64 with the seed, then the table hash with the salt
//!  43  section count     u8   0 if the key count is 0, else 1
//!  44  required flags    u16  0: a reader that does not know one of them must refuse
//!  46  optional flags    u16  0: a reader may ignore those that it does not know
//!  48  seed              u64  of the hash of a user key
//!  56  salt              u64  of the table hash
//!  64  key count         u64  distinct user keys
//!  72  rate              u64  predicted false-positive rate in units of 2^-64
//!  80  size              u64  Bloom: bits, a multiple of 64; blocked Bloom: lines of 64 bytes
//!  88  probes            u8   1 to 30
//!  89  reserved          39   0 (room for the parameters of other kinds)
//! 128  sections          120  five of {offset u64, length u64, checksum u32, reserved u32 0}; unused ones 0
//! 248  reserved          8    0
//! ```
//!
//! Offsets count from the start of the block, so that a block means the same wherever it stands. The fields
//! called frozen have their place and meaning in every version, for ever: a reader can verify and skip the
//! header of a newer version, and tells newer from damaged by verifying before it looks at the version.
//!
//! After the header come the page checksums of all sections, four bytes each, and zeros up to a multiple of
//! 64; then each section in order, one longer than a page at the next multiple of 4096, another at the next
//! multiple of 64; zeros up to a multiple of 64 end the block. A block has no other shape: [`Layout`]
//! computes it from the lengths of the sections, for the writer and for the reader, who compares.

use crate::checksum::{FileId, checksum32};
use crate::codec::{DecodeError, Reader, put_u16, put_u32, put_u64};
use crate::hash::HASH_ID;

use super::blocked::{Blocked, LINE_BITS, LINE_BYTES};
use super::bloom::{Bloom, GRANULE_BITS, PROBES_MAX};

/// First bytes of every filter block.
pub const MAGIC: [u8; 8] = *b"\x89SVFLT\r\n";

/// The newest format version, and the only one so far.
pub const FORMAT_VERSION: u16 = 1;

/// Length of a header of this version.
pub const HEADER_BYTES: usize = 256;

/// Length of a header of any version: what suffices for [`block_len`] and [`checksum`].
pub const HEADER_BYTES_MAX: usize = 4096;

/// Domain 0: the filter holds whole user keys.
pub const DOMAIN_WHOLE_KEY: u8 = 0;

/// Length of a page, the unit that is checked.
pub(super) const PAGE_BYTES: u64 = 4096;

const ALIGN: u64 = 64;
const CHECKSUM_OFFSET: usize = 12;
const FROZEN_BYTES: usize = 40;
const SECTIONS_MAX: usize = 5;
const SECTION_BYTES: usize = 24;

/// What a filter block is. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// Standard Bloom filter.
    Bloom = 1,
    /// Bloom filter in lines of 64 bytes.
    BlockedBloom = 2,
}

impl Kind {
    fn from_u8(kind: u8) -> Option<Self> {
        [Self::Bloom, Self::BlockedBloom].into_iter().find(|known| *known as u8 == kind)
    }
}

/// A part of the body that can be loaded, checked and dropped by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Where it starts, in bytes from the start of the block.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// CRC-32 of the checksums of its pages.
    pub checksum: u32,
}

/// The decoded header of a filter block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// What was inserted: [`DOMAIN_WHOLE_KEY`].
    pub domain: u8,
    /// Flags that a reader may ignore.
    pub optional_flags: u16,
    /// File id of the table whose keys it holds.
    pub owner: FileId,
    /// Length of the whole block in bytes.
    pub block_len: u64,
    /// Seed of [`key_hash`](crate::hash::key_hash).
    pub seed: u64,
    /// Salt of [`table_hash`](crate::hash::table_hash).
    pub salt: u64,
    /// Number of distinct user keys.
    pub key_count: u64,
    /// False-positive rate in units of 2^-64, computed from the bits as they stand.
    pub rate: u64,
    /// Bits, or lines of 64 bytes, by kind; 0 if there are no keys.
    pub size: u64,
    /// Bits tested per query; 0 if there are no keys.
    pub probes: u8,
    /// The parts of the body.
    pub sections: Vec<Section>,
    /// The checksum of the header as it stands in it.
    pub checksum: u32,
}

/// The parameters of a kind, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Empty,
    Bloom(Bloom),
    Blocked(Blocked),
}

impl Shape {
    /// Length of the one section; `None` if it cannot be said in 64 bits.
    pub(super) fn body_bytes(self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bloom(bloom) => Some(bloom.bits / 8),
            Self::Blocked(blocked) => blocked.lines.checked_mul(LINE_BYTES as u64),
        }
    }

    pub(super) fn stored_rate(self, body: &[u8]) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bloom(bloom) => bloom.stored_rate(body),
            Self::Blocked(blocked) => blocked.stored_rate(body),
        }
    }
}

/// Where the parts of a block lie, computed from the length of its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Offset of each section.
    pub(super) offsets: Vec<u64>,
    /// Length of the block.
    pub(super) block_len: u64,
}

impl Layout {
    /// `None` if the block would not fit 64 bits.
    pub(super) fn of(lens: &[u64]) -> Option<Self> {
        let pages = lens.iter().try_fold(0u64, |sum, len| sum.checked_add(len.div_ceil(PAGE_BYTES)))?;
        let mut end = pages.checked_mul(4)?.checked_add(HEADER_BYTES as u64)?;
        let mut offsets = Vec::with_capacity(lens.len());
        for &len in lens {
            let align = if len > PAGE_BYTES { PAGE_BYTES } else { ALIGN };
            let start = end.checked_next_multiple_of(align)?;
            offsets.push(start);
            end = start.checked_add(len)?;
        }
        Some(Self { offsets, block_len: end.checked_next_multiple_of(ALIGN)? })
    }
}

impl Header {
    /// Number of bits that keys are hashed to.
    #[must_use]
    pub fn bits(&self) -> u64 {
        match self.kind {
            Kind::Bloom => self.size,
            Kind::BlockedBloom => self.size.saturating_mul(LINE_BITS),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
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
        out.resize(128, 0);
        for section in &self.sections {
            put_u64(&mut out, section.offset);
            put_u64(&mut out, section.len);
            put_u32(&mut out, section.checksum);
            put_u32(&mut out, 0);
        }
        out.resize(HEADER_BYTES, 0);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        let checksum = header_checksum(&header, &self.owner);
        header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Decodes and verifies the header at the start of `bytes`, which need not hold the whole block.
    ///
    /// Checked in this order: magic, length, checksum, version, required flags, kind, domain, hash id, the rest.
    ///
    /// # Errors
    ///
    /// `Unsupported` if it is intact but asks for something unknown here, `Corrupt` for all else. Offsets
    /// count from the start of the block.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let frozen = Frozen::verified(bytes)?;
        known(8, "filter format version", frozen.version.into(), FORMAT_VERSION.into())?;
        if frozen.header.len() != HEADER_BYTES {
            let detail = format!("expected {HEADER_BYTES}, found {}", frozen.header.len());
            return Err(DecodeError::corrupt(10, "filter header length", detail));
        }
        let mut reader = Reader::new(frozen.header);
        reader.bytes(FROZEN_BYTES, "filter header")?;
        let kind = reader.u8("filter kind")?;
        let domain = reader.u8("filter domain")?;
        let hash_id = reader.u8("filter hash id")?;
        let section_count = reader.u8("filter section count")?;
        known(44, "filter required flags", reader.u16("filter required flags")?.into(), 0)?;
        let Some(kind) = Kind::from_u8(kind) else {
            return Err(DecodeError::unsupported(40, "filter kind", kind.into(), Kind::BlockedBloom as u64));
        };
        known(41, "filter domain", domain.into(), DOMAIN_WHOLE_KEY.into())?;
        known(42, "filter hash id", hash_id.into(), HASH_ID.into())?;
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
            sections: Vec::new(),
            checksum: frozen.checksum,
        };
        reader.zeros(39, "filter header reserved bytes")?;
        header.sections = decode_sections(&mut reader, section_count)?;
        reader.zeros(8, "filter header reserved bytes")?;
        header.check_layout(header.shape()?)?;
        Ok(header)
    }

    /// The parameters of the kind, if a filter can have them.
    pub(super) fn shape(&self) -> Result<Shape, DecodeError> {
        let (size, probes) = (self.size, self.probes);
        if self.key_count == 0 {
            if (size, probes, self.rate) != (0, 0, 0) {
                return Err(DecodeError::corrupt(64, "filter key count", "is 0, but there are parameters"));
            }
            return Ok(Shape::Empty);
        }
        if probes == 0 || probes > PROBES_MAX {
            let detail = format!("expected 1 to {PROBES_MAX}, found {probes}");
            return Err(DecodeError::corrupt(88, "filter probes", detail));
        }
        let granule = if self.kind == Kind::Bloom { GRANULE_BITS } else { 1 };
        if size == 0 || size % granule != 0 {
            let detail = format!("{size} is not a positive multiple of {granule}");
            return Err(DecodeError::corrupt(80, "filter size", detail));
        }
        Ok(match self.kind {
            Kind::Bloom => Shape::Bloom(Bloom { bits: size, probes }),
            Kind::BlockedBloom => Shape::Blocked(Blocked { lines: size, probes }),
        })
    }

    /// Checks that the sections are those of `shape`, and stand where the layout puts them.
    fn check_layout(&self, shape: Shape) -> Result<(), DecodeError> {
        let count = usize::from(shape != Shape::Empty);
        if self.sections.len() != count {
            let detail = format!("expected {count}, found {}", self.sections.len());
            return Err(DecodeError::corrupt(43, "filter section count", detail));
        }
        let lens: Vec<u64> = self.sections.iter().map(|section| section.len).collect();
        if count == 1 && shape.body_bytes() != Some(lens[0]) {
            let detail = format!("{} bytes do not agree with a size of {}", lens[0], self.size);
            return Err(DecodeError::corrupt(136, "filter section length", detail));
        }
        let Some(layout) = Layout::of(&lens) else {
            return Err(DecodeError::corrupt(
                136,
                "filter section length",
                "the block would pass 2^64 bytes",
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

/// Length of the whole block of which `first_bytes` are the first: [`HEADER_BYTES`] of them suffice for this
/// version, [`HEADER_BYTES_MAX`] for all. It is known for blocks of newer versions and unknown kinds too, so
/// that whoever walks a file can step over them.
///
/// # Errors
///
/// `Corrupt` if they are not the verified header of a filter block.
pub fn block_len(first_bytes: &[u8]) -> Result<u64, DecodeError> {
    Frozen::verified(first_bytes).map(|frozen| frozen.block_len)
}

/// The checksum of the header at the start of `first_bytes`, verified, of any version. A reference to a filter
/// holds it, and so pins the filter's contents.
///
/// # Errors
///
/// As [`block_len`].
pub fn checksum(first_bytes: &[u8]) -> Result<u32, DecodeError> {
    Frozen::verified(first_bytes).map(|frozen| frozen.checksum)
}

/// The fields that every version has, of a header whose checksum is right.
struct Frozen<'a> {
    version: u16,
    checksum: u32,
    owner: FileId,
    block_len: u64,
    /// The whole header.
    header: &'a [u8],
}

impl<'a> Frozen<'a> {
    fn verified(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 8] = reader.array("filter magic")?;
        if magic != MAGIC {
            let detail = format!("expected {MAGIC:02x?}, found {magic:02x?}");
            return Err(DecodeError::corrupt(0, "filter magic", detail));
        }
        let version = reader.u16("filter format version")?;
        let len = usize::from(reader.u16("filter header length")?);
        let checksum = reader.u32("filter header checksum")?;
        let owner = reader.array("filter owner")?;
        let block_len = reader.u64("filter block length")?;
        if !(64..=HEADER_BYTES_MAX).contains(&len) || len % 64 != 0 {
            let detail = format!("{len} is not a multiple of 64 up to {HEADER_BYTES_MAX}");
            return Err(DecodeError::corrupt(10, "filter header length", detail));
        }
        let header = Reader::new(bytes).bytes(len, "filter header")?;
        let expected = header_checksum(header, &owner);
        if checksum != expected {
            let detail = format!("stored {checksum:08x}, computed {expected:08x}");
            return Err(DecodeError::corrupt(12, "filter header checksum", detail));
        }
        if block_len < len as u64 || block_len % ALIGN != 0 {
            let detail = format!("{block_len} is not a multiple of 64 from {len} on");
            return Err(DecodeError::corrupt(32, "filter block length", detail));
        }
        Ok(Self { version, checksum, owner, block_len, header })
    }
}

fn header_checksum(header: &[u8], owner: &FileId) -> u32 {
    checksum32(owner, 0, &[&header[..CHECKSUM_OFFSET], &header[CHECKSUM_OFFSET + 4..]])
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
pub(super) mod tests {
    use super::*;

    /// Makes the checksum of a header right again after a change in it.
    pub(in crate::filter) fn reseal(block: &mut [u8]) {
        let len = usize::from(u16::from_le_bytes([block[10], block[11]])).clamp(64, block.len());
        let owner: FileId = block[16..32].try_into().unwrap();
        let checksum = header_checksum(&block[..len], &owner);
        block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    fn header() -> Header {
        Header {
            kind: Kind::Bloom,
            domain: 0,
            optional_flags: 0,
            owner: [4; 16],
            block_len: 4096 + 8192,
            seed: 1,
            salt: 2,
            key_count: 6000,
            rate: 5,
            size: 65_536,
            probes: 7,
            sections: vec![Section { offset: 4096, len: 8192, checksum: 9 }],
            checksum: 0,
        }
    }

    #[test]
    fn a_header_comes_back() {
        let bytes = header().encode();
        let back = Header::decode(&bytes).unwrap();
        assert_eq!(checksum(&bytes), Ok(back.checksum));
        assert_eq!(Header { checksum: 0, ..back }, header());
        assert_eq!(block_len(&bytes), Ok(4096 + 8192));
    }

    #[test]
    fn the_block_of_a_newer_version_can_be_stepped_over_but_not_read() {
        let mut bytes = header().encode()[..64].to_vec();
        bytes[8] = 2;
        bytes[10..12].copy_from_slice(&64u16.to_le_bytes());
        reseal(&mut bytes);
        assert_eq!(block_len(&bytes), Ok(4096 + 8192));
        let error = Header::decode(&bytes).unwrap_err();
        assert_eq!(error, DecodeError::unsupported(8, "filter format version", 2, 1));
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

    #[test]
    fn sections_longer_than_a_page_start_on_a_page_and_others_on_a_line() {
        let layout = Layout::of(&[4097, 8, 4096, 5000]).unwrap();
        assert_eq!(layout.offsets, [4096, 8256, 8320, 16_384]);
        assert_eq!(layout.block_len, 21_440);
        assert_eq!(Layout::of(&[]).unwrap().block_len, 256);
        // 2^20 pages have 4 MiB of checksums.
        assert_eq!(Layout::of(&[1 << 32]).unwrap().offsets, [(4 << 20) + 4096]);
        for len in [u64::MAX, u64::MAX - 4096, u64::MAX / 4096 * 4095] {
            assert_eq!(Layout::of(&[len, len]), None);
        }
        assert_eq!(Layout::of(&[u64::MAX - 100]), None);
    }
}
