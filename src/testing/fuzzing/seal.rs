//! Recomputes checksums after changes, so that the protected bytes are reached. It follows format.md and is lenient: it
//! follows every length within the bytes, and skips all other bytes. Resealing an intact file changes nothing.
//!
//! A table repeats its filter's checksum, the manifest a table's checksum, and logs the hash of an edit. [`Mended`]
//! collects the changes to repeat.

use xxhash_rust::xxh3::xxh3_64;

use crate::block::{ENVELOPE_BYTES, Envelope};
use crate::checksum::{FileId, checksum, checksum32};
use crate::file_header::HEADER_BYTES;
use crate::filter::fuzzing::reseal;
use crate::filter::header::{HEADER_BYTES as FILTER_HEADER_BYTES, MAGIC};
use crate::table::{FILTER_OFFSET, FOOTER_BYTES};
use crate::wal::record::{FRAGMENT_HEADER_BYTES, extent, page_left};

#[derive(Debug, Default)]
pub(super) struct Mended(Vec<(Vec<u8>, Vec<u8>)>);

impl Mended {
    fn put(&mut self, place: &mut [u8], new: &[u8]) {
        if place != new {
            self.0.push((place.to_vec(), new.to_vec()));
            place.copy_from_slice(new);
        }
    }

    pub(super) fn carry_into(&self, bytes: &mut [u8]) {
        for (old, new) in self.0.iter().filter(|(old, _)| old.iter().any(|&byte| byte != 0)) {
            let mut at = 0;
            while let Some(window) = bytes.get_mut(at..at + old.len()) {
                if window == &old[..] {
                    window.copy_from_slice(new);
                    at += old.len();
                } else {
                    at += 1;
                }
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn id_at(bytes: &[u8], at: usize) -> FileId {
    let mut id = FileId::default();
    id.copy_from_slice(&bytes[at..at + 16]);
    id
}

pub(super) fn file_id(file: &[u8]) -> Option<FileId> {
    (file.len() >= HEADER_BYTES).then(|| id_at(file, 32))
}

pub(super) fn header(file: &mut [u8]) {
    let Some(id) = file_id(file) else { return };
    let sum = checksum32(&id, 0, &[&file[..60]]);
    file[60..64].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn current(file: &mut [u8]) {
    header(file);
    let Some(id) = file_id(file).filter(|_| file.len() >= 96) else { return };
    let sum = checksum32(&id, 64, &[&file[64..92]]);
    file[92..96].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn backup_index(file: &mut [u8]) {
    header(file);
    let Some(id) = file_id(file).filter(|_| file.len() >= 92) else { return };
    let end = file.len() - 8;
    let sum = checksum(&id, 64, &[&file[64..end]]);
    file[end..].copy_from_slice(&sum.to_le_bytes());
}

/// After an invalid length, continues with the next page.
pub(super) fn framed(file: &mut [u8]) {
    header(file);
    let Some(id) = file_id(file) else { return };
    let mut at = HEADER_BYTES;
    while at + FRAGMENT_HEADER_BYTES <= file.len() {
        let len = extent(at as u64, u16_at(file, at + 4).into()).filter(|len| at + len <= file.len());
        let Some(len) = len else {
            at += page_left(at as u64);
            continue;
        };
        let sum = checksum32(&id, at as u64, &[&file[at + 4..at + len]]);
        file[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        at += len;
    }
}

pub(super) fn manifest(file: &mut [u8], mended: &mut Mended) {
    let mut at = HEADER_BYTES;
    let mut previous = None;
    while at + FRAGMENT_HEADER_BYTES <= file.len() {
        let payload = usize::from(u16_at(file, at + 4));
        let Some(len) = extent(at as u64, payload).filter(|len| at + len <= file.len()) else {
            break;
        };
        let start = at + FRAGMENT_HEADER_BYTES;
        if payload < 16 || file[at + 6] & 3 != 3 {
            break;
        }
        let (mark, fields) = file[start..start + payload].split_at_mut(16);
        // The first edit begins with a base, the edit that it continues: tag 3, length 16, count and hash.
        let base = fields.strip_prefix(&[3, 16]).filter(|base| base.len() >= 16);
        let base = previous.or_else(|| base.map(|base| (u64_at(base, 0), u64_at(base, 8))));
        let Some((count, hash)) = base else { break };
        let next = u64::wrapping_add(count, 1);
        let hash = xxh3_64(&[&hash.to_le_bytes(), &next.to_le_bytes(), &*fields].concat());
        mended.put(&mut mark[8..], &hash.to_le_bytes());
        mark[..8].copy_from_slice(&next.to_le_bytes());
        previous = Some((next, hash));
        at += len;
    }
    framed(file);
}

pub(super) fn block(sealed: &mut [u8], owner: &FileId, offset: u64) {
    if sealed.len() < ENVELOPE_BYTES {
        return;
    }
    let sum = checksum(owner, offset, &[&sealed[..12], &sealed[ENVELOPE_BYTES..]]);
    sealed[12..20].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn filter_block(block: &mut [u8], mended: &mut Mended) {
    reseal(block, |place, sum| mended.put(place, sum));
}

pub(super) fn filter_file(file: &mut [u8], mended: &mut Mended) {
    header(file);
    if let Some(block) = file.get_mut(FILTER_OFFSET as usize..) {
        filter_block(block, mended);
    }
}

/// A filter block ends at the next nonzero block.
pub(super) fn table(file: &mut [u8], mended: &mut Mended) {
    header(file);
    let Some(owner) = file_id(file) else { return };
    let Some(end) = file.len().checked_sub(FOOTER_BYTES).filter(|&end| end >= HEADER_BYTES) else { return };
    let mut at = HEADER_BYTES;
    while at < end {
        let left = &mut file[at..end];
        let len = if left.starts_with(&MAGIC) && left.len() >= FILTER_HEADER_BYTES {
            let len = usize::try_from(u64_at(left, 32)).unwrap_or(usize::MAX);
            if len > left.len() || len == 0 {
                break;
            }
            filter_block(&mut left[..len], mended);
            mended.carry_into(&mut left[len..]);
            len
        } else {
            let Ok(envelope) = Envelope::decode(left) else { break };
            let len = envelope.sealed_len() as usize;
            if len > left.len() {
                break;
            }
            block(&mut left[..len], &owner, at as u64);
            len
        };
        at += len;
    }
    let sum = checksum32(&owner, end as u64, &[&file[end..end + 116]]);
    mended.put(&mut file[end + 116..end + 120], &sum.to_le_bytes());
}
