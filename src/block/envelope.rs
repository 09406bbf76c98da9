//! The 20 bytes before the payload of every block: sealing and opening blocks.
//!
//! ```text
//!  0  kind          u8   data, index, value chunk, properties, padding, spans: append only
//!  1  compression   u8   0 none, 1 LZ4 block format (no frame, no size prefix)
//!  2  flags         u16  bit 0: the entries have a hash index; an unknown flag refuses the block
//!  4  stored length u32  bytes that follow the envelope
//!  8  raw length    u32  bytes of the payload once decompressed; the stored length if not compressed
//! 12  checksum      u64  `checksum` of (file id, offset of the block, bytes 0..12, stored payload)
//! ```
//!
//! Kind and lengths precede the payload, so a table can be walked and salvaged without its index. The checksum covers
//! the offset and the owner, so a misplaced or foreign block is detected.
//!
//! A payload is compressed only if this saves at least an eighth. Both lengths are at most [`BLOCK_BYTES_MAX`], and
//! decompression must fill exactly the raw length.

use byteorder::{ByteOrder, LittleEndian};
use bytes::{Buf, Bytes};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::checksum::{FileId, checksum};
use crate::codec::{DecodeError, put_u16, put_u32, put_u64};
use crate::limits::BLOCK_BYTES_MAX;

use super::trailer::has_hash_index;

pub(crate) const ENVELOPE_BYTES: usize = 20;

const CHECKED_BYTES: usize = 12;

/// The contents of a block. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Data = 1,
    Index = 2,
    ValueChunk = 3,
    Properties = 4,
    Padding = 5,
    Spans = 7,
    // Reserved: 6 meta index, 8 blobs, 9 compression dictionary.
}

/// The payload has a hash index ([`trailer`](super::trailer)). The flag stops readers without support.
const FLAG_HASH_INDEX: u16 = 1;

const BLOCK_KIND_MAX: u8 = 7;

impl BlockKind {
    pub(crate) fn from_u8(kind: u8) -> Option<Self> {
        [Self::Data, Self::Index, Self::ValueChunk, Self::Properties, Self::Padding, Self::Spans]
            .into_iter()
            .find(|known| *known as u8 == kind)
    }

    pub(super) fn has_entries(self) -> bool {
        matches!(self, Self::Data | Self::Index)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Data => "data block",
            Self::Index => "index block",
            Self::ValueChunk => "value chunk",
            Self::Properties => "properties block",
            Self::Padding => "padding block",
            Self::Spans => "span block",
        }
    }
}

/// The storage of a payload. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum Compression {
    /// Uncompressed.
    None = 0,
    /// LZ4 block format.
    #[default]
    Lz4 = 1,
}

impl Compression {
    pub(crate) fn from_u8(compression: u8) -> Option<Self> {
        match compression {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) kind: u8,
    pub(crate) compression: u8,
    pub(super) flags: u16,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) checksum: u64,
}

impl Envelope {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(bytes) = bytes.first_chunk::<ENVELOPE_BYTES>() else {
            let detail = format!("needs {ENVELOPE_BYTES} bytes, {} left", bytes.len());
            return Err(DecodeError::corrupt(0, "block envelope", detail));
        };
        let envelope = Self {
            kind: bytes[0],
            compression: bytes[1],
            flags: LittleEndian::read_u16(&bytes[2..]),
            stored_len: LittleEndian::read_u32(&bytes[4..]),
            raw_len: LittleEndian::read_u32(&bytes[8..]),
            checksum: LittleEndian::read_u64(&bytes[CHECKED_BYTES..]),
        };
        for (offset, what, len) in
            [(4, "block stored length", envelope.stored_len), (8, "block raw length", envelope.raw_len)]
        {
            if len as usize > BLOCK_BYTES_MAX {
                let detail = format!("{len} is over the limit of {BLOCK_BYTES_MAX}");
                return Err(DecodeError::corrupt(offset, what, detail));
            }
        }
        Ok(envelope)
    }

    pub(crate) fn sealed_len(&self) -> u64 {
        ENVELOPE_BYTES as u64 + u64::from(self.stored_len)
    }

    pub(crate) fn check_known(&self) -> Result<(BlockKind, Compression), DecodeError> {
        let kind = BlockKind::from_u8(self.kind).ok_or_else(|| {
            DecodeError::unsupported(0, "block kind", self.kind.into(), BLOCK_KIND_MAX.into())
        })?;
        let known_flags = if kind.has_entries() { FLAG_HASH_INDEX } else { 0 };
        if self.flags & !known_flags != 0 {
            let known = known_flags.into();
            return Err(DecodeError::unsupported(2, "block flags", self.flags.into(), known));
        }
        let compression = Compression::from_u8(self.compression).ok_or_else(|| {
            let known = Compression::Lz4 as u64;
            DecodeError::unsupported(1, "block compression", self.compression.into(), known)
        })?;
        Ok((kind, compression))
    }
}

#[derive(Debug)]
pub(crate) struct Sealer {
    owner: FileId,
    scratch: Vec<u8>,
}

impl Sealer {
    pub(crate) fn new(owner: FileId) -> Self {
        Self { owner, scratch: Vec::new() }
    }

    /// Seals a block for this offset of the file and returns its length.
    pub(crate) fn seal(
        &mut self,
        out: &mut Vec<u8>,
        offset: u64,
        kind: BlockKind,
        compression: Compression,
        payload: &[u8],
    ) -> u64 {
        debug_assert!(payload.len() <= BLOCK_BYTES_MAX);
        let (compression, stored) = match compression {
            Compression::Lz4 => compress(&mut self.scratch, payload),
            Compression::None => (Compression::None, payload),
        };
        let start = out.len();
        out.extend_from_slice(&[kind as u8, compression as u8]);
        put_u16(out, flags(kind, payload));
        put_u32(out, stored.len() as u32);
        put_u32(out, payload.len() as u32);
        let checksum = checksum(&self.owner, offset, &[&out[start..start + CHECKED_BYTES], stored]);
        put_u64(out, checksum);
        out.extend_from_slice(stored);
        (out.len() - start) as u64
    }
}

fn flags(kind: BlockKind, payload: &[u8]) -> u16 {
    if kind.has_entries() && has_hash_index(payload) { FLAG_HASH_INDEX } else { 0 }
}

fn compress<'a>(scratch: &'a mut Vec<u8>, payload: &'a [u8]) -> (Compression, &'a [u8]) {
    let room = get_maximum_output_size(payload.len());
    if scratch.len() < room {
        scratch.resize(room, 0);
    }
    match compress_into(payload, scratch) {
        Ok(len) if len <= payload.len() - payload.len().div_ceil(8) => (Compression::Lz4, &scratch[..len]),
        _ => (Compression::None, payload),
    }
}

/// Verifies and decompresses a block read from `offset` of the file `owner`: length, limits, checksum, kind, flags,
/// compression, raw length, hash index.
pub(crate) fn unseal(
    owner: &FileId,
    offset: u64,
    sealed: Vec<u8>,
) -> Result<(BlockKind, Bytes), DecodeError> {
    let envelope = Envelope::decode(&sealed)?;
    if envelope.sealed_len() != sealed.len() as u64 {
        let detail =
            format!("the block has {} bytes, {} were referred to", envelope.sealed_len(), sealed.len());
        return Err(DecodeError::corrupt(4, "block stored length", detail));
    }
    let (head, stored) = (&sealed[..CHECKED_BYTES], &sealed[ENVELOPE_BYTES..]);
    let computed = checksum(owner, offset, &[head, stored]);
    if computed != envelope.checksum {
        let detail = format!("stored {:016x}, computed {computed:016x}", envelope.checksum);
        return Err(DecodeError::corrupt(12, "block checksum", detail));
    }
    let (kind, compression) = envelope.check_known()?;
    let raw_len = envelope.raw_len as usize;
    let payload = match compression {
        Compression::None if raw_len != stored.len() => {
            let detail = format!("{raw_len}, but {} bytes are stored uncompressed", stored.len());
            return Err(DecodeError::corrupt(8, "block raw length", detail));
        }
        Compression::None => {
            let mut payload = Bytes::from(sealed);
            payload.advance(ENVELOPE_BYTES);
            payload
        }
        Compression::Lz4 => decompress(stored, raw_len)?.into(),
    };
    if envelope.flags != flags(kind, &payload) {
        return Err(DecodeError::corrupt(2, "block flags", "other than the payload about its hash index"));
    }
    Ok((kind, payload))
}

pub(crate) fn open(
    owner: &FileId,
    offset: u64,
    sealed: Vec<u8>,
    expected: BlockKind,
) -> Result<Bytes, DecodeError> {
    let (kind, payload) = unseal(owner, offset, sealed)?;
    if kind != expected {
        let detail = format!("expected {}, found {}", expected.name(), kind.name());
        return Err(DecodeError::corrupt(0, "block kind", detail));
    }
    Ok(payload)
}

fn decompress(stored: &[u8], raw_len: usize) -> Result<Vec<u8>, DecodeError> {
    // LZ4 expands a byte to at most 255.
    if raw_len > stored.len().saturating_mul(255) {
        let detail = format!("{raw_len} cannot come from {} compressed bytes", stored.len());
        return Err(DecodeError::corrupt(8, "block raw length", detail));
    }
    let mut raw = vec![0; raw_len];
    match decompress_into(stored, &mut raw) {
        Ok(len) if len == raw_len => Ok(raw),
        Ok(len) => {
            let detail = format!("decompressed to {len} bytes, {raw_len} are stated");
            Err(DecodeError::corrupt(8, "block raw length", detail))
        }
        Err(error) => {
            Err(DecodeError::corrupt(ENVELOPE_BYTES as u64, "compressed payload", error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::DecodeErrorKind;

    const OWNER: FileId = [5; 16];

    fn sealed(compression: Compression, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Sealer::new(OWNER).seal(&mut out, 64, BlockKind::Data, compression, payload);
        out
    }

    fn patched(mut block: Vec<u8>, offset: usize, byte: u8) -> Vec<u8> {
        block[offset] = byte;
        let sum = checksum(&OWNER, 64, &[&block[..12], &block[20..]]);
        block[12..20].copy_from_slice(&sum.to_le_bytes());
        block
    }

    #[test]
    fn payloads_of_every_kind_and_size_come_back() {
        for len in [0, 1, 20, 4096, 16_371, 16_372, 16_373, BLOCK_BYTES_MAX] {
            let even: Vec<u8> = vec![7; len];
            let mixed: Vec<u8> =
                (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            for payload in [even, mixed] {
                for compression in [Compression::None, Compression::Lz4] {
                    let block = sealed(compression, &payload);
                    assert_eq!(open(&OWNER, 64, block, BlockKind::Data).unwrap()[..], payload);
                }
            }
        }
    }

    #[test]
    fn only_what_saves_an_eighth_is_compressed() {
        assert_eq!(sealed(Compression::Lz4, &[1; 4096])[1], 1);
        let noise: Vec<u8> =
            (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ i as u8).collect();
        let block = sealed(Compression::Lz4, &noise);
        assert!(block[1] == 0 || block.len() - 20 <= 4096 * 7 / 8);
        assert_eq!(sealed(Compression::Lz4, b"short")[1], 0);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_an_error() {
        for compression in [Compression::None, Compression::Lz4] {
            let good = sealed(compression, &b"0123456789".repeat(20));
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(unseal(&OWNER, 64, bad).is_err(), "bit {bit}");
            }
            for len in 0..good.len() {
                assert!(unseal(&OWNER, 64, good[..len].to_vec()).is_err(), "{len}");
            }
        }
    }

    #[test]
    fn a_good_block_of_another_place_or_file_is_corruption() {
        let block = sealed(Compression::None, b"payload");
        assert_eq!(unseal(&OWNER, 65, block.clone()).unwrap_err().what, "block checksum");
        assert_eq!(unseal(&[6; 16], 64, block.clone()).unwrap_err().what, "block checksum");
        assert_eq!(open(&OWNER, 64, block, BlockKind::Index).unwrap_err().what, "block kind");
    }

    #[test]
    fn intact_blocks_with_impossible_envelopes_are_refused() {
        let plain = || sealed(Compression::None, &[9; 100]);
        let none = || sealed(Compression::None, &[0; 100]);
        let packed = || sealed(Compression::Lz4, &[9; 100]);
        let cases = [
            ("unknown kind", patched(plain(), 0, 6), "block kind", true),
            ("kind 0", patched(plain(), 0, 0), "block kind", true),
            ("unknown compression", patched(plain(), 1, 2), "block compression", true),
            ("unknown flag", patched(plain(), 3, 0x80), "block flags", true),
            ("next flag", patched(plain(), 2, 2), "block flags", true),
            ("a hash index of a value", patched(patched(plain(), 0, 3), 2, 1), "block flags", true),
            ("a hash index that is not stated", patched(plain(), 2, 0), "block flags", false),
            ("a hash index that is not there", patched(none(), 2, 1), "block flags", false),
            ("raw length of a plain block", patched(plain(), 8, 99), "block raw length", false),
            ("raw length too small", patched(packed(), 8, 99), "compressed payload", false),
            ("raw length too large", patched(packed(), 8, 101), "block raw length", false),
            ("plain bytes called compressed", patched(plain(), 1, 1), "compressed payload", false),
            ("raw length over the limit", patched(packed(), 11, 1), "block raw length", false),
            ("raw length no LZ4 can reach", patched(packed(), 10, 0x3f), "block raw length", false),
        ];
        for (name, block, what, newer) in cases {
            let error = unseal(&OWNER, 64, block).unwrap_err();
            assert_eq!(error.what, what, "{name}");
            assert_eq!(matches!(error.kind, DecodeErrorKind::Unsupported { .. }), newer, "{name}");
        }
    }
}
