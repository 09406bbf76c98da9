//! The encoding of all structures: a header and a body.
//!
//! ```text
//!   0  magic              8   89 53 56 53 4b 54 0d 0a                                        frozen
//!   8  format version    u16  1                                                              frozen
//!  10  header length     u16  a multiple of 8 from 48 to 4096                                frozen
//!  12  header checksum   u32  CRC-32 of (OWNER, offset 0, header without these four bytes)   frozen
//!  16  body length       u64  all bytes after the header                                     frozen
//!  24  body checksum     u64  of (OWNER, header length, body)
//!  32  kind              u8   append only
//!  33  hash id           u8   1
//!  34  required flags    u16  0; a reader must reject an unknown flag
//!  36  optional flags    u16  0; a reader may ignore an unknown flag
//!  38  reserved          u16  0
//!  40  seed              u64  of the hash of a key
//!  48  parameters             the kind's own, up to the header length
//! ```
//!
//! The header is verified before its version is read: a newer structure is not reported as damaged.

use std::fmt;

use byteorder::{ByteOrder, LittleEndian};
use sievedb_filter::checksum::{checksum, checksum32};
pub(crate) use sievedb_filter::codec::{Reader, put_u64, put_varint};
use sievedb_filter::codec::{another_magic, put_u16, put_u32};
pub use sievedb_filter::{DecodeError, DecodeErrorKind, FileId};
use sievedb_filter::{FilterBuilder, FilterError};

use crate::error::Error;
use crate::hash::HASH_ID;

/// The first bytes of every encoded structure.
pub const MAGIC: [u8; 8] = *b"\x89SVSKT\r\n";

/// The newest format version.
pub const FORMAT_VERSION: u16 = 1;

/// Replaces the file id in the checksums, so that other blocks of a store are rejected.
const OWNER: FileId = *b"sievedb-sketches";

const CHECKSUM_OFFSET: usize = 12;
const FIXED_BYTES: usize = 48;
const HEADER_BYTES_MAX: usize = 4096;

/// The kind of an encoded structure. Append only: the numbers are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// [`Bloom`](crate::Bloom).
    Bloom = 1,
    /// [`Counting`](crate::Counting).
    Counting = 2,
    /// [`Spectral`](crate::Spectral).
    Spectral = 3,
    /// [`DLeft`](crate::DLeft).
    DLeft = 4,
    /// [`Scalable`](crate::Scalable).
    Scalable = 5,
    /// [`Stable`](crate::Stable).
    Stable = 6,
    /// [`Ring`](crate::Ring).
    Ring = 7,
    /// [`Expiring`](crate::Expiring).
    Expiring = 8,
    /// [`Cuckoo`](crate::Cuckoo).
    Cuckoo = 9,
    /// [`HashCompaction`](crate::HashCompaction).
    HashCompaction = 10,
    /// [`GolombSet`](crate::GolombSet).
    GolombSet = 11,
    /// [`StaticMap`](crate::StaticMap).
    StaticMap = 12,
    /// [`Approximator`](crate::Approximator).
    Approximator = 13,
    /// [`Iblt`](crate::Iblt).
    Iblt = 14,
    /// [`Rateless`](crate::Rateless).
    Rateless = 15,
    /// [`DifferenceSize`](crate::DifferenceSize).
    DifferenceSize = 16,
    /// [`Digest`](crate::Digest).
    Digest = 17,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 17] = [
        Self::Bloom,
        Self::Counting,
        Self::Spectral,
        Self::DLeft,
        Self::Scalable,
        Self::Stable,
        Self::Ring,
        Self::Expiring,
        Self::Cuckoo,
        Self::HashCompaction,
        Self::GolombSet,
        Self::StaticMap,
        Self::Approximator,
        Self::Iblt,
        Self::Rateless,
        Self::DifferenceSize,
        Self::Digest,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bloom => "Bloom filter",
            Self::Counting => "counting Bloom filter",
            Self::Spectral => "spectral Bloom filter",
            Self::DLeft => "d-left counting filter",
            Self::Scalable => "scalable Bloom filter",
            Self::Stable => "stable Bloom filter",
            Self::Ring => "ring of Bloom filters",
            Self::Expiring => "expiring Bloom filter",
            Self::Cuckoo => "cuckoo filter",
            Self::HashCompaction => "hash compaction table",
            Self::GolombSet => "Golomb-coded set",
            Self::StaticMap => "static map",
            Self::Approximator => "compact approximator",
            Self::Iblt => "invertible table",
            Self::Rateless => "rateless invertible table",
            Self::DifferenceSize => "difference size",
            Self::Digest => "digest",
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Envelope<'a> {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    parameters: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Verifies magic, header length and checksum, version, required flags, kind, hash id, body length and checksum.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 8] = reader.array("sketch magic")?;
        if magic != MAGIC {
            return Err(DecodeError::corrupt(0, "sketch magic", another_magic(&MAGIC, &magic)));
        }
        let version = reader.u16("sketch format version")?;
        let len = usize::from(reader.u16("sketch header length")?);
        if !(FIXED_BYTES..=HEADER_BYTES_MAX).contains(&len) || len % 8 != 0 {
            let detail = format!("{len} is not a multiple of 8 from {FIXED_BYTES} to {HEADER_BYTES_MAX}");
            return Err(DecodeError::corrupt(10, "sketch header length", detail));
        }
        let stored = reader.u32("sketch header checksum")?;
        let header = Reader::new(bytes).bytes(len, "sketch header")?;
        let computed = header_checksum(header);
        if stored != computed {
            let detail = format!("stored {stored:08x}, computed {computed:08x}");
            return Err(DecodeError::corrupt(12, "sketch header checksum", detail));
        }
        let mut reader = Reader::new(header);
        reader.bytes(16, "sketch header")?;
        known(8, "sketch format version", version.into(), FORMAT_VERSION.into())?;
        let body_len = reader.u64("sketch body length")?;
        let body_checksum = reader.u64("sketch body checksum")?;
        let kind = reader.u8("sketch kind")?;
        let hash_id = reader.u8("sketch hash id")?;
        known(34, "sketch required flags", reader.u16("sketch required flags")?.into(), 0)?;
        let Some(kind) = Kind::ALL.into_iter().find(|known| *known as u8 == kind) else {
            let newest = Kind::ALL.map(|kind| kind as u64).into_iter().max().unwrap_or(0);
            return Err(DecodeError::unsupported(32, "sketch kind", kind.into(), newest));
        };
        known(33, "sketch hash id", hash_id.into(), HASH_ID.into())?;
        reader.u16("sketch optional flags")?;
        reader.zeros(2, "sketch header reserved bytes")?;
        let seed = reader.u64("sketch seed")?;
        let body = &bytes[len..];
        if body.len() as u64 != body_len {
            let detail = format!("expected {body_len} bytes, found {}", body.len());
            return Err(DecodeError::corrupt(16, "sketch body length", detail));
        }
        let computed = checksum(&OWNER, len as u64, &[body]);
        if body_checksum != computed {
            let detail = format!("stored {body_checksum:016x}, computed {computed:016x}");
            return Err(DecodeError::corrupt(24, "sketch body checksum", detail));
        }
        Ok(Self { kind, seed, parameters: &header[FIXED_BYTES..], body })
    }

    pub(crate) fn parameters(&self) -> Parameters<'a> {
        Parameters { reader: Reader::new(self.parameters) }
    }

    /// The body, if it has this length.
    pub(crate) fn body_of(&self, len: Option<u64>) -> Result<&'a [u8], DecodeError> {
        if len == Some(self.body.len() as u64) {
            return Ok(self.body);
        }
        let needs = len.map_or("more than 2^64".into(), |len| len.to_string());
        Err(self.corrupt("sketch body length", format!("expected {needs} bytes, found {}", self.body.len())))
    }

    pub(crate) fn body_reader(&self) -> Reader<'a> {
        Reader::new(self.body)
    }

    pub(crate) fn corrupt(&self, what: &'static str, detail: impl Into<String>) -> DecodeError {
        DecodeError::corrupt((FIXED_BYTES + self.parameters.len()) as u64, what, detail)
    }
}

fn known(offset: u64, what: &'static str, found: u64, supported: u64) -> Result<(), DecodeError> {
    if found > supported || (found == 0 && supported > 0) {
        return Err(DecodeError::unsupported(offset, what, found, supported));
    }
    Ok(())
}

/// Parameters, read in order.
#[derive(Debug)]
pub(crate) struct Parameters<'a> {
    reader: Reader<'a>,
}

impl Parameters<'_> {
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.reader.u64(what).map_err(|error| error.at(FIXED_BYTES as u64))
    }

    /// The next number, in `least..=most`.
    pub(crate) fn number_in(
        &mut self,
        least: u64,
        most: u64,
        what: &'static str,
    ) -> Result<u64, DecodeError> {
        let offset = FIXED_BYTES as u64 + self.reader.offset();
        let found = self.number(what)?;
        if (least..=most).contains(&found) {
            return Ok(found);
        }
        Err(DecodeError::corrupt(offset, what, format!("expected {least} to {most}, found {found}")))
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        let offset = FIXED_BYTES as u64 + self.reader.offset();
        match self.reader.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::corrupt(offset, "sketch parameters", format!("{left} bytes too many"))),
        }
    }
}

pub(crate) fn seal(kind: Kind, seed: u64, parameters: &[u64], body: &[u8]) -> Vec<u8> {
    let len = FIXED_BYTES + 8 * parameters.len();
    debug_assert!(len <= HEADER_BYTES_MAX);
    let mut out = Vec::with_capacity(len + body.len());
    out.extend_from_slice(&MAGIC);
    put_u16(&mut out, FORMAT_VERSION);
    put_u16(&mut out, len as u16);
    put_u32(&mut out, 0);
    put_u64(&mut out, body.len() as u64);
    put_u64(&mut out, checksum(&OWNER, len as u64, &[body]));
    out.extend_from_slice(&[kind as u8, HASH_ID]);
    put_u16(&mut out, 0);
    put_u32(&mut out, 0);
    put_u64(&mut out, seed);
    parameters.iter().for_each(|&number| put_u64(&mut out, number));
    seal_header(&mut out);
    out.extend_from_slice(body);
    out
}

fn header_checksum(header: &[u8]) -> u32 {
    checksum32(&OWNER, 0, &[&header[..CHECKSUM_OFFSET], &header[CHECKSUM_OFFSET + 4..]])
}

fn seal_header(header: &mut [u8]) {
    let checksum = header_checksum(header);
    LittleEndian::write_u32(&mut header[CHECKSUM_OFFSET..], checksum);
}

/// Corrects lengths and checksums.
#[cfg(any(test, fuzzing))]
pub(crate) fn reseal(bytes: &mut [u8]) {
    if bytes.len() < FIXED_BYTES {
        return;
    }
    let len = usize::from(LittleEndian::read_u16(&bytes[10..])).clamp(FIXED_BYTES, bytes.len());
    let (header, body) = bytes.split_at_mut(len);
    LittleEndian::write_u64(&mut header[16..], body.len() as u64);
    LittleEndian::write_u64(&mut header[24..], checksum(&OWNER, len as u64, &[body]));
    seal_header(header);
}

pub(crate) fn filter_block(
    bits: u64,
    probes: u8,
    body: &[u8],
    seed: u64,
    owner: FileId,
    keys: u64,
) -> Result<Vec<u8>, Error> {
    let builder = FilterBuilder::new(sievedb_filter::Kind::Bloom, 10.0, seed, 0, owner);
    let builder = builder.and_then(|builder| builder.bits_and_probes(bits, probes));
    let block = builder
        .and_then(|builder| if keys == 0 { builder.finish() } else { builder.finish_with_bits(body, keys) });
    block.map_err(|error| match error {
        FilterError::TooLarge { asked, .. } => Error::TooLarge(asked),
        error => Error::invalid(error.to_string()),
    })
}

pub(crate) fn words_to_bytes(words: impl Iterator<Item = u64>, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((len as usize).next_multiple_of(8));
    words.for_each(|word| put_u64(&mut bytes, word));
    bytes.truncate(len as usize);
    bytes
}

pub(crate) fn bytes_to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        LittleEndian::read_u64(&word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        seal(Kind::Bloom, 7, &[1, 2], b"body")
    }

    fn changed(offset: usize, value: u8) -> DecodeError {
        let mut bytes = sample();
        bytes[offset] = value;
        reseal(&mut bytes);
        Envelope::open(&bytes).unwrap_err()
    }

    #[test]
    fn an_envelope_opens_as_it_was_sealed() {
        let bytes = sample();
        let envelope = Envelope::open(&bytes).unwrap();
        assert_eq!((envelope.kind, envelope.seed, envelope.body), (Kind::Bloom, 7, &b"body"[..]));
        let mut parameters = envelope.parameters();
        assert_eq!((parameters.number("a").unwrap(), parameters.number("b").unwrap()), (1, 2));
        parameters.finish().unwrap();
        assert!(envelope.parameters().finish().is_err());
        assert!(envelope.parameters().number_in(2, 3, "a").is_err());
    }

    #[test]
    fn what_is_intact_and_newer_is_unsupported_and_not_corrupt() {
        for (offset, what) in [(8, "version"), (32, "kind"), (33, "hash id"), (34, "required flags")] {
            let error = changed(offset, 200);
            assert!(matches!(error.kind, DecodeErrorKind::Unsupported { found: 200, .. }), "{error}");
            assert!(error.what.contains(what), "{error}");
        }
    }

    #[test]
    fn optional_flags_are_ignored_and_reserved_bytes_are_zero() {
        let mut bytes = sample();
        bytes[36] = 1;
        reseal(&mut bytes);
        Envelope::open(&bytes).unwrap();
        assert!(matches!(changed(38, 1).kind, DecodeErrorKind::Corrupt(_)));
    }

    #[test]
    fn a_body_of_another_length_is_refused_before_its_checksum_is_computed() {
        let mut bytes = sample();
        bytes.push(0);
        assert_eq!(Envelope::open(&bytes).unwrap_err().what, "sketch body length");
        bytes.truncate(bytes.len() - 2);
        assert_eq!(Envelope::open(&bytes).unwrap_err().what, "sketch body length");
    }

    #[test]
    fn words_and_bytes_are_each_others_inverse() {
        let bytes: Vec<u8> = (1..=19).collect();
        assert_eq!(words_to_bytes(bytes_to_words(&bytes), 19), bytes);
    }
}
