//! The search for intact fragments in arbitrary bytes.

use byteorder::{ByteOrder, LittleEndian};

use super::log_checksums::Sums;
use super::record::{
    BadFragment, FRAGMENT_ALIGN, FRAGMENT_HEADER_BYTES, Fragment, PAGE_BYTES, open_fragment, open_with,
};
use crate::checksum::{FileId, checksum32};

const BUDGET_BYTES: usize = 16 * PAGE_BYTES;

/// Checks every multiple of 8. `synced` is checked before the checksum, because it is rarely valid in other bytes.
/// `log_checksums` limits the cost of crafted bytes.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    file_id: &'a FileId,
    offset: u64,
    rest: &'a [u8],
    budget: usize,
    sums: Option<Sums>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(file_id: &'a FileId, offset: u64, rest: &'a [u8]) -> Self {
        Self { file_id, offset, rest, budget: BUDGET_BYTES, sums: None }
    }

    pub(crate) fn first_from(&mut self, from: u64, synced_min: u64) -> Option<Fragment> {
        let mut place = (from - self.offset) as usize;
        while let Some(header) = self.rest.get(place..place + FRAGMENT_HEADER_BYTES) {
            let at = self.offset + place as u64;
            let synced = LittleEndian::read_u64(header.last_chunk::<8>()?);
            if synced_min <= synced
                && synced <= at
                && let Ok(fragment) = open_with(at, &self.rest[place..], |bytes| self.sum(place, bytes))
            {
                return Some(fragment);
            }
            place += FRAGMENT_ALIGN;
        }
        None
    }

    fn sum(&mut self, place: usize, fragment: &[u8]) -> u32 {
        let (file_id, at) = (self.file_id, self.offset + place as u64);
        let one_by_one = || checksum32(file_id, at, &[&fragment[4..]]);
        if let Some(left) = self.budget.checked_sub(fragment.len()) {
            self.budget = left;
            return one_by_one();
        }
        let sums = self.sums.get_or_insert_with(|| Sums::of(file_id, self.rest));
        sums.of_fragment(at, place, fragment.len()).unwrap_or_else(one_by_one)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageArea {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) status: AreaStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AreaStatus {
    Intact(Fragment),
    Padding,
    Damaged(BadFragment),
}

/// The areas are contiguous. Damaged bytes up to the next intact fragment are one area.
pub(crate) fn areas<'a>(
    file_id: &'a FileId,
    offset: u64,
    rest: &'a [u8],
) -> impl Iterator<Item = PageArea> + use<'a> {
    let (mut search, mut done) = (Search::new(file_id, offset, rest), 0);
    std::iter::from_fn(move || {
        let (at, left) = (offset + done as u64, &rest[done..]);
        if left.is_empty() {
            return None;
        }
        let (bytes, status) = match open_fragment(file_id, at, left) {
            Ok(fragment) => (fragment.extent_bytes, AreaStatus::Intact(fragment)),
            Err(damage) => {
                let next = search.first_from(at, 0);
                let bytes = next.map_or(left.len(), |next| (next.offset - at) as usize);
                let zeros = left[..bytes].iter().all(|&byte| byte == 0);
                (bytes, if zeros { AreaStatus::Padding } else { AreaStatus::Damaged(damage) })
            }
        };
        done += bytes;
        Some(PageArea { offset: at, bytes, status })
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::{RecordKind, extent, put_fragment};
    use super::*;

    const ID: FileId = [9; 16];

    fn fragment(offset: u64, payload: &[u8], synced: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_fragment(&mut out, &ID, offset, (RecordKind::Batch, true), synced, &mut &*payload);
        out
    }

    #[test]
    fn spans_cover_a_page_whatever_is_in_it() {
        let mut page = fragment(64, b"one", 0);
        page.extend([0; 40]);
        let second = 64 + page.len() as u64;
        page.extend(fragment(second, b"two", 64));
        page.extend(b"rubbish");
        let seen: Vec<_> = areas(&ID, 64, &page).collect();
        assert!(matches!(seen[0].status, AreaStatus::Intact(f) if f.synced == 0));
        assert_eq!((seen[1].bytes, seen[1].status), (40, AreaStatus::Padding));
        assert!(matches!(seen[2].status, AreaStatus::Intact(f) if f.synced == 64 && f.offset == second));
        assert!(matches!(
            seen[3],
            PageArea { bytes: 7, status: AreaStatus::Damaged(BadFragment::Unfinished), .. }
        ));
        for bit in 0..page.len() * 8 {
            let mut bad = page.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(areas(&ID, 64, &bad).map(|area| area.bytes).sum::<usize>(), bad.len());
        }
    }

    #[test]
    fn a_search_finds_the_same_by_sums_as_one_by_one() {
        let mut page =
            [0xff, 0xff, 0xff, 0xff, 0x00, 0x60, 0x07, 0, 64, 0, 0, 0, 0, 0, 0, 0].repeat(PAGE_BYTES / 16);
        let last = (1 << 20) + 32_000;
        let good = fragment(last, b"payload", 70);
        page[32_000..32_000 + good.len()].copy_from_slice(&good);
        let first = (1 << 20) + 8000;
        let whole = &page[8000..][..extent(first, 0x6000).unwrap()];
        let crc = checksum32(&ID, first, &[&whole[4..]]);
        page[8000..8004].copy_from_slice(&crc.to_le_bytes());
        let mut search = Search::new(&ID, 1 << 20, &page);
        let (mut found, mut from) = (Vec::new(), 1 << 20);
        while let Some(fragment) = search.first_from(from, 1) {
            assert_eq!(
                open_fragment(&ID, fragment.offset, &page[fragment.offset as usize % PAGE_BYTES..]),
                Ok(fragment)
            );
            found.push(fragment.offset);
            from = fragment.offset + 8;
        }
        assert!(search.sums.is_some(), "the budget was spent");
        assert_eq!(found, [first, last]);
    }
}
