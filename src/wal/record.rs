//! Fragments: encoding and decoding the parts of a record.
//!
//! ```text
//! fragment  at a multiple of 8, within one page
//!  0  checksum   u32  CRC-32 of (file id, offset of the fragment in the file, bytes 4 .. extent)
//!  4  length     u16  payload bytes in this fragment
//!  6  type       u8   bit 0: first of its record; bit 1: last of its record; bits 2..8: record kind
//!  7  reserved   u8   0
//!  8  synced     u64  the file was known to be durable up to this offset; at most the fragment's own offset
//! 16  payload    length bytes
//!     padding    zeros up to the extent
//! ```
//!
//! The *extent* of a fragment is its length rounded up to a multiple of 8. If only 8 bytes of the page would remain,
//! too few for a header, they belong to it. Thus a checksum covers every byte after the file header. A record is split
//! only at the end of a page; 16 remaining bytes are a fragment without payload.

use std::fmt;

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::{FileChecksum, FileId, checksum32};
use crate::file_header::FileKind;
use crate::limits::BATCH_BYTES_MAX;

/// Pages start at multiples of this size.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

pub(crate) const FRAGMENT_HEADER_BYTES: usize = 16;

pub(super) const FRAGMENT_ALIGN: usize = 8;

/// The longest batch and some slack. A longer record is damage.
pub(super) const RECORD_BYTES_MAX: usize = BATCH_BYTES_MAX + (64 << 10);

const FIRST: u8 = 1;
const LAST: u8 = 2;
const KIND_SHIFT: u32 = 2;

/// The kind of a record. The numbers are on disk: append only, see format.md, and at most 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Batch = 1,
    /// States the durable progress if no other record of the log does.
    Promise = 2,
    /// The last record of a log that was closed in order.
    Close = 3,
    Edit = 4,
    Boundaries = 5,
}

pub(super) const RECORD_KIND_MAX: u8 = RecordKind::Boundaries as u8;

impl RecordKind {
    pub(super) fn from_u8(kind: u8) -> Option<Self> {
        [Self::Batch, Self::Promise, Self::Close, Self::Edit, Self::Boundaries]
            .into_iter()
            .find(|known| *known as u8 == kind)
    }

    pub(super) fn belongs_in(self, file: FileKind) -> bool {
        match self {
            Self::Batch | Self::Promise | Self::Close | Self::Boundaries => file == FileKind::Log,
            Self::Edit => file == FileKind::Manifest,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadFragment {
    Unfinished,
    Zeros,
    Length {
        found: u16,
    },
    Checksum {
        stored: u32,
        computed: u32,
    },
    /// The checksum matches, but the position is impossible.
    Misplaced(&'static str),
}

impl fmt::Display for BadFragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("the file ends before the record does"),
            Self::Zeros => f.write_str("only zeros up to the end of the file"),
            Self::Length { found } => write!(f, "a length of {found} crosses the end of the page"),
            Self::Checksum { stored, computed } => {
                write!(f, "checksum: stored {stored:08x}, computed {computed:08x}")
            }
            Self::Misplaced(why) => f.write_str(why),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) offset: u64,
    pub(crate) kind: u8,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(super) reserved: u8,
    pub(crate) synced: u64,
    pub(crate) payload_bytes: usize,
    pub(crate) extent_bytes: usize,
}

impl Fragment {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.extent_bytes as u64
    }
}

#[inline]
pub(crate) fn page_left(offset: u64) -> usize {
    PAGE_BYTES - (offset % PAGE_BYTES as u64) as usize
}

/// The distance to the next fragment; `None` if this fragment would cross the end of the page.
#[inline]
pub(crate) fn extent(offset: u64, payload_bytes: usize) -> Option<usize> {
    let left = page_left(offset);
    let aligned = (FRAGMENT_HEADER_BYTES + payload_bytes).next_multiple_of(FRAGMENT_ALIGN);
    let rest = left.checked_sub(aligned)?;
    Some(if rest < FRAGMENT_HEADER_BYTES { left } else { aligned })
}

/// The offset of byte `at` of a record. All fragments except the last fill their pages.
pub(super) fn payload_offset(offset: u64, at: u64) -> u64 {
    const HEADER: u64 = FRAGMENT_HEADER_BYTES as u64;
    const PAGE: u64 = PAGE_BYTES as u64;
    let left = page_left(offset) as u64;
    match (at + HEADER).checked_sub(left) {
        None => offset + HEADER + at,
        Some(behind) => {
            let pages = behind / (PAGE - HEADER);
            offset + left + pages * PAGE + HEADER + behind % (PAGE - HEADER)
        }
    }
}

#[cfg(test)]
pub(crate) fn put_fragment(
    out: &mut Vec<u8>,
    file_id: &FileId,
    offset: u64,
    place: (RecordKind, bool),
    synced: u64,
    payload: &mut &[u8],
) {
    put_with(out, &FileChecksum::new(file_id), offset, place, synced, payload);
}

/// Appends a fragment to `out`, which ends at `offset` of the file, and removes its bytes from `payload`.
#[inline]
pub(super) fn put_with(
    out: &mut Vec<u8>,
    sums: &FileChecksum,
    offset: u64,
    (kind, first): (RecordKind, bool),
    synced: u64,
    payload: &mut &[u8],
) {
    let left = page_left(offset);
    let (now, later) = payload.split_at(payload.len().min(left - FRAGMENT_HEADER_BYTES));
    *payload = later;
    let flags = if first { FIRST } else { 0 } | if later.is_empty() { LAST } else { 0 };
    let (start, extent) = (out.len(), extent(offset, now.len()).unwrap_or(left));
    let mut header = [0; FRAGMENT_HEADER_BYTES];
    LittleEndian::write_u16(&mut header[4..6], now.len() as u16);
    header[6] = (kind as u8) << KIND_SHIFT | flags;
    LittleEndian::write_u64(&mut header[8..], synced);
    out.reserve(extent);
    out.extend_from_slice(&header);
    out.extend_from_slice(now);
    // Zeros for alignment, and for the end of a page that has no room for a header.
    const PADDING: [u8; FRAGMENT_ALIGN + FRAGMENT_HEADER_BYTES] = [0; FRAGMENT_ALIGN + FRAGMENT_HEADER_BYTES];
    out.extend_from_slice(&PADDING[..extent - FRAGMENT_HEADER_BYTES - now.len()]);
    let crc = sums.of(offset, &out[start + 4..]);
    LittleEndian::write_u32(&mut out[start..start + 4], crc);
}

/// `rest` ends with the page or the file. The kind and the reserved byte are not checked.
pub(super) fn open_fragment(file_id: &FileId, offset: u64, rest: &[u8]) -> Result<Fragment, BadFragment> {
    open_with(offset, rest, |bytes| checksum32(file_id, offset, &[&bytes[4..]]))
}

pub(super) fn open_with(
    offset: u64,
    rest: &[u8],
    sum: impl FnOnce(&[u8]) -> u32,
) -> Result<Fragment, BadFragment> {
    let header = rest.first_chunk().ok_or(BadFragment::Unfinished)?;
    let (stored, fragment) = decode_header(offset, header)?;
    let bytes = rest.get(..fragment.extent_bytes).ok_or(BadFragment::Unfinished)?;
    let computed = sum(bytes);
    if stored != computed {
        return Err(BadFragment::Checksum { stored, computed });
    }
    if bytes[FRAGMENT_HEADER_BYTES + fragment.payload_bytes..].iter().any(|&byte| byte != 0) {
        return Err(BadFragment::Misplaced("padding is not zero"));
    }
    if fragment.synced > offset {
        return Err(BadFragment::Misplaced("a fragment claims that bytes after it were durable before it"));
    }
    if !fragment.last && fragment.payload_bytes != page_left(offset) - FRAGMENT_HEADER_BYTES {
        return Err(BadFragment::Misplaced("a record is cut before the end of the page"));
    }
    Ok(fragment)
}

fn decode_header(offset: u64, header: &[u8; FRAGMENT_HEADER_BYTES]) -> Result<(u32, Fragment), BadFragment> {
    let (kind, reserved) = (header[6], header[7]);
    let found = LittleEndian::read_u16(&header[4..6]);
    let extent_bytes = extent(offset, found.into()).ok_or(BadFragment::Length { found })?;
    let fragment = Fragment {
        offset,
        kind: kind >> KIND_SHIFT,
        first: kind & FIRST != 0,
        last: kind & LAST != 0,
        reserved,
        synced: LittleEndian::read_u64(&header[8..]),
        payload_bytes: found.into(),
        extent_bytes,
    };
    Ok((LittleEndian::read_u32(&header[..4]), fragment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = [9; 16];

    fn fragment(offset: u64, payload: &[u8], synced: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_fragment(&mut out, &ID, offset, (RecordKind::Batch, true), synced, &mut &*payload);
        out
    }

    fn resealed(mut bytes: Vec<u8>, offset: u64) -> Vec<u8> {
        let crc = checksum32(&ID, offset, &[&bytes[4..]]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn extents_are_aligned_and_never_leave_room_too_small_for_a_header() {
        for left in (16..=200).step_by(8) {
            let offset = (PAGE_BYTES - left) as u64;
            for len in 0..200 {
                let mut payload = &vec![1; len][..];
                let mut out = Vec::new();
                put_fragment(&mut out, &ID, offset, (RecordKind::Edit, false), 0, &mut payload);
                let found = open_fragment(&ID, offset, &out).unwrap();
                assert_eq!(found.extent_bytes, out.len());
                assert_eq!((out.len() % 8, found.payload_bytes), (0, len.min(left - 16)));
                assert_eq!(found.last, payload.is_empty());
                assert_eq!((found.kind, found.first), (4, false));
                let aligned = (16 + found.payload_bytes).div_ceil(8) * 8;
                let extent = if left - aligned < 16 { left } else { aligned };
                assert_eq!(out.len(), extent, "left {left}, length {len}");
            }
        }
    }

    #[test]
    fn the_bytes_of_a_record_are_found_behind_the_headers_in_all_its_pages() {
        let payload: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        for start in [64, PAGE_BYTES - 32, PAGE_BYTES - 24, PAGE_BYTES - 16, 2 * PAGE_BYTES] {
            let (mut file, mut rest) = (vec![0; start], &payload[..]);
            while !rest.is_empty() {
                let (offset, first) = (file.len() as u64, rest.len() == payload.len());
                put_fragment(&mut file, &ID, offset, (RecordKind::Batch, first), 0, &mut rest);
            }
            for (at, byte) in payload.iter().enumerate() {
                let offset = payload_offset(start as u64, at as u64) as usize;
                assert_eq!((offset, file[offset]), (offset, *byte), "byte {at} of the record at {start}");
            }
        }
    }

    #[test]
    fn the_longest_batch_fits_a_record() {
        assert_eq!(RECORD_BYTES_MAX - BATCH_BYTES_MAX, 65_536);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_of_a_fragment_is_damage() {
        for (offset, len) in [(64, 0), (64, 1), (64, 100), (PAGE_BYTES as u64 - 32, 5)] {
            let good = fragment(offset, &vec![0xa5; len], 64);
            assert!(open_fragment(&ID, offset, &good).is_ok());
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(open_fragment(&ID, offset, &bad).is_err(), "bit {bit}");
            }
            for end in 0..good.len() {
                assert_eq!(open_fragment(&ID, offset, &good[..end]), Err(BadFragment::Unfinished));
            }
        }
    }

    #[test]
    fn a_fragment_of_another_file_or_place_is_damage() {
        let good = fragment(64, b"payload", 0);
        assert!(matches!(open_fragment(&[8; 16], 64, &good), Err(BadFragment::Checksum { .. })));
        assert!(matches!(open_fragment(&ID, 72, &good), Err(BadFragment::Checksum { .. })));
        assert!(matches!(
            open_fragment(&ID, 64 + PAGE_BYTES as u64, &good),
            Err(BadFragment::Checksum { .. })
        ));
    }

    #[test]
    fn what_no_writer_makes_is_damage_even_under_a_good_checksum() {
        let good = fragment(64, b"payload", 64);
        for (place, value, what) in [
            (23, 1, "padding is not zero"),
            (8, 65, "a fragment claims that bytes after it were durable before it"),
            (6, 1 << KIND_SHIFT | FIRST, "a record is cut before the end of the page"),
        ] {
            let mut bad = good.clone();
            bad[place] = value;
            assert_eq!(open_fragment(&ID, 64, &resealed(bad, 64)), Err(BadFragment::Misplaced(what)));
        }
        let near_end = (PAGE_BYTES - 32) as u64;
        let mut bad = fragment(near_end, b"payload", 64);
        bad[4] = 17;
        assert_eq!(
            open_fragment(&ID, near_end, &resealed(bad, near_end)),
            Err(BadFragment::Length { found: 17 })
        );
    }

    #[test]
    fn kinds_know_their_numbers_and_their_files() {
        let known: Vec<_> = (0..=255).filter_map(RecordKind::from_u8).map(|kind| kind as u8).collect();
        assert_eq!(known, [1, 2, 3, 4, 5]);
        assert!(RecordKind::Edit.belongs_in(FileKind::Manifest));
        assert!(!RecordKind::Edit.belongs_in(FileKind::Log));
        assert!(!RecordKind::Batch.belongs_in(FileKind::Table));
    }
}
