//! Sealed blocks with any parameters and bits, for the fuzzer.

use alloc::vec;
use alloc::vec::Vec;

use super::header::{DOMAIN_WHOLE_KEY, HEADER_BYTES, Header, Kind};
use super::layout::Layout;
use super::pages;
use super::section::Section;
use crate::checksum::FileId;

#[must_use]
pub fn header(kind: Kind, owner: FileId) -> Header {
    Header {
        kind,
        domain: DOMAIN_WHOLE_KEY,
        optional_flags: 0,
        owner,
        block_len: HEADER_BYTES as u64,
        seed: 1,
        salt: 2,
        key_count: 100,
        rate: u64::MAX,
        size: 0,
        probes: 0,
        column_groups: [0; 3],
        attempt: 0,
        buckets: [0; 4],
        plain_blocks: 0,
        sections: Vec::new(),
        checksum: 0,
    }
}

/// Returns a block whose bits are `body`, repeated. `None` for invalid parameters or more than `bytes_max` bytes.
pub fn forge(mut header: Header, body: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let layout = Layout::of(&header.shape().ok()?.section_lens()?)?;
    let len = usize::try_from(layout.block_len).ok().filter(|&len| len <= bytes_max)?;
    let sections = layout.offsets.iter().zip(&layout.lens);
    header.sections = sections.map(|(&offset, &len)| Section { offset, len, checksum: 0 }).collect();
    header.block_len = layout.block_len;
    let mut block = vec![0; len];
    let mut bytes = body.iter().copied().cycle();
    for section in &header.sections {
        let place = &mut block[section.offset as usize..(section.offset + section.len) as usize];
        place.iter_mut().for_each(|byte| *byte = bytes.next().unwrap_or(0));
    }
    pages::seal(&mut block, &header.owner, &mut header.sections);
    block[..HEADER_BYTES].copy_from_slice(&header.encode());
    Some(block)
}
