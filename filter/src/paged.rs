//! A filter on disk that is read page by page.
//!
//! 1. [`PagedFilter::needs`] lists the byte ranges of the *head* (header, page checksums, thresholds) and of the ends
//!    of the column groups.
//! 2. [`PagedFilter::open`] verifies these bytes and keeps the head.
//! 3. [`PagedFilter::may_contain`] requests pages until the answer is certain. The caller verifies them ([`Page::verify`]) and
//!    may cache them.
//!
//! | kind | pages that a query for an absent key reads |
//! |---|---|
//! | blocked Bloom | one |
//! | ribbon | one; two if the window straddles pages; one for each later column group that is probed: `2^-c` of the queries pass a group of `c` columns |
//! | standard Bloom | one for each bit up to the first 0: two on average at the best number of bits |
//!
//! In ribbon filters of 500 000 keys with 8 columns, a query reads 1.016 pages on average; with two groups, 1.042.
//!
//! # Invariants
//!
//! - A [`Filter`](super::Filter) gives the same answers.
//! - "Absent" depends only on verified pages.
//! - A probe reads at most three pages per column group, or one per bit.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::arch::Simd;
use super::blocked::LINE_BYTES;
use super::bloom::Bloom;
use super::bloom::rate_of;
use super::header::{HEADER_BYTES, Header, Kind};
use super::layout::Shape;
use super::pages::{self, Page};
use super::reader::Expect;
use super::ribbon::{Paged, Ribbon, tail_bytes};
use super::section::{PAGE_BYTES, checksums_len};
use crate::codec::DecodeError;
use crate::hash::{key_hash, table_hash};

/// Maximum bytes of unpacked tails and the section list.
const TAILS_BYTES: usize = 512;

/// A filter that reads pages on demand.
///
/// ```
/// use sievedb_filter::{Expect, FilterBuilder, Kind, Page, PagedFilter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = FilterBuilder::new(Kind::Ribbon, 10.0, 7, 11, [42; 16])?;
/// (0..100_000_u64).for_each(|key| builder.add_key(&key.to_le_bytes()));
/// let file = builder.finish()?; // as if it were one
///
/// let needs = PagedFilter::needs(&file[..256], file.len() as u64)?;
/// let read = |part: &std::ops::Range<u64>| file[part.start as usize..part.end as usize].to_vec();
/// let filter = PagedFilter::open(needs.iter().map(read).collect(), file.len() as u64, Expect::table([42; 16], 7, 100_000))?;
/// assert!(filter.memory_bytes() < file.len() / 50);
///
/// let mut pages = 0;
/// let mut read = |page: &Page| {
///     pages += 1;
///     let bytes = &file[page.offset as usize..][..page.len];
///     page.verify(bytes).map(|()| bytes)
/// };
/// assert!(filter.may_contain_key(&7_u64.to_le_bytes(), &mut read)?);
/// assert!(!filter.may_contain_key(b"absent", &mut read)?);
/// assert!(pages <= 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PagedFilter {
    header: Header,
    shape: Shape,
    ribbon: Option<Paged>,
    head: Vec<u8>,
    simd: Simd,
    if_empty: bool,
}

impl PagedFilter {
    /// Returns the parts of a block that [`PagedFilter::open`] needs: about 0.4 % of the block and some pages. `first`
    /// is the start of the block, at least 256 bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Header::decode`], and `Corrupt` if the header states another length.
    pub fn needs(first: &[u8], block_len: u64) -> Result<Vec<Range<u64>>, DecodeError> {
        let header = Header::decode(first)?;
        if header.block_len != block_len {
            let detail = format!("stored {}, found {block_len}", header.block_len);
            return Err(DecodeError::corrupt(32, "filter block length", detail));
        }
        let mut needs = Vec::with_capacity(header.sections.len().max(1));
        needs.push(0..header.head_len());
        if let (Shape::Ribbon(ribbon), [_, groups @ ..]) = (header.shape()?, &header.sections[..]) {
            needs.extend(groups.iter().enumerate().map(|(index, group)| {
                let page = tail_bytes(&ribbon, index).start / PAGE_BYTES * PAGE_BYTES;
                group.offset + page..group.offset + group.len
            }));
        }
        Ok(needs)
    }

    /// Verifies the parts listed by [`PagedFilter::needs`], and the caller's expectations. Linear.
    ///
    /// # Errors
    ///
    /// The errors of [`Filter::open`](super::Filter::open).
    pub fn open(mut parts: Vec<Vec<u8>>, block_len: u64, expect: Expect) -> Result<Self, DecodeError> {
        let head = parts.first().map(Vec::as_slice).unwrap_or_default();
        let needs = Self::needs(head, block_len)?;
        let header = Header::decode(head)?;
        expect.check(&header)?;
        if !parts.iter().map(|part| part.len() as u64).eq(needs.iter().map(|part| part.end - part.start)) {
            return Err(DecodeError::corrupt(0, "filter parts", "have other lengths than the needed parts"));
        }
        pages::verify_checksums(&head[HEADER_BYTES..], &header)?;
        let shape = header.shape()?;
        let ribbon = match shape {
            Shape::Ribbon(ribbon) if needs.len() > 1 => Some(open_ribbon(ribbon, &header, &parts, &needs)?),
            _ => None,
        };
        let head = parts.swap_remove(0);
        Ok(Self { header, shape, ribbon, head, simd: Simd::detect(), if_empty: expect.if_empty() })
    }

    fn checksums(&self) -> &[u8] {
        self.head.get(HEADER_BYTES..).unwrap_or_default()
    }

    /// Whether a key with this [`key_hash`] may have been added. `false` is certain. `read` must verify the page; missing bytes
    /// count as a match.
    ///
    /// # Errors
    ///
    /// The first error of `read`.
    pub fn may_contain<P: AsRef<[u8]>, E>(
        &self,
        hash: u64,
        read: impl FnMut(&Page) -> Result<P, E>,
    ) -> Result<bool, E> {
        self.may_contain_after(0, hash, read)
    }

    /// [`PagedFilter::may_contain`] for a key that passed the column groups in memory
    /// ([`Filter::open_groups`](super::Filter::open_groups)), which are skipped.
    ///
    /// # Errors
    ///
    /// The first error of `read`.
    pub fn may_contain_after<P: AsRef<[u8]>, E>(
        &self,
        column_groups: usize,
        hash: u64,
        read: impl FnMut(&Page) -> Result<P, E>,
    ) -> Result<bool, E> {
        if column_groups > 0 && column_groups >= self.header.column_group_count() {
            return Ok(true);
        }
        let hash = table_hash(hash, self.header.salt);
        let mut last = LastPage { filter: self, read, last: None };
        match (&self.shape, &self.ribbon) {
            (Shape::Empty, _) => Ok(self.if_empty),
            (Shape::Bloom(bloom), _) => {
                for bit in bloom.positions(Bloom::locate(hash)) {
                    let mut byte = [0];
                    if last.read(0, bit / 8, &mut byte)? && byte[0] >> (bit % 8) & 1 == 0 {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Shape::Blocked(blocked), _) => {
                let (number, word) = blocked.locate(hash);
                let mut line = [0; LINE_BYTES];
                let is_there = last.read(0, number * LINE_BYTES as u64, &mut line)?;
                Ok(!is_there || blocked.multipliers().all(|part| self.simd.line_has(&line, word, part)))
            }
            (Shape::Ribbon(_), Some(ribbon)) => {
                let thresholds = self.header.sections.first().map_or(0, |section| section.offset as usize);
                let thresholds = self.head.get(thresholds..).unwrap_or_default();
                let mut source = |section, at, out: &mut [u8]| last.read(section, at, out);
                ribbon.may_contain(self.simd, thresholds, column_groups, hash, &mut source)
            }
            (Shape::Ribbon(_), None) => Ok(true),
        }
    }

    /// [`PagedFilter::may_contain`] for a key.
    ///
    /// # Errors
    ///
    /// The first error of `read`.
    pub fn may_contain_key<P: AsRef<[u8]>, E>(
        &self,
        key: &[u8],
        read: impl FnMut(&Page) -> Result<P, E>,
    ) -> Result<bool, E> {
        self.may_contain(key_hash(self.header.seed, key), read)
    }

    /// The false-positive rate with all column groups.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        rate_of(self.header.rate)
    }

    /// Memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        Self::memory_bytes_with(self.head.len())
    }

    /// Memory in bytes, if the first part has `head` bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn memory_bytes_with(head: usize) -> usize {
        size_of::<Self>() + TAILS_BYTES + head
    }

    /// The filter kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.header.kind
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl fmt::Debug for PagedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagedFilter")
            .field("kind", &self.header.kind)
            .field("key_count", &self.header.key_count)
            .finish_non_exhaustive()
    }
}

fn open_ribbon(
    ribbon: Ribbon,
    header: &Header,
    parts: &[Vec<u8>],
    needs: &[Range<u64>],
) -> Result<Paged, DecodeError> {
    let mut tails = Vec::with_capacity(parts.len());
    for (index, ((part, at), section)) in parts.iter().zip(needs).zip(&header.sections).enumerate() {
        let from = at.start.max(section.offset);
        let bytes = &part[(from - at.start) as usize..];
        let offsets = (from - section.offset..section.len).step_by(PAGE_BYTES as usize);
        for (offset, bytes) in offsets.zip(bytes.chunks(PAGE_BYTES as usize)) {
            let page = Page::holding(header, &parts[0][HEADER_BYTES..], index, offset);
            page.ok_or_else(|| DecodeError::corrupt(from, "filter page", "has no checksum"))?
                .verify(bytes)?;
        }
        if let Some(group) = index.checked_sub(1) {
            tails.push(&bytes[(tail_bytes(&ribbon, group).start % PAGE_BYTES) as usize..]);
        }
    }
    let checksums_end = HEADER_BYTES + checksums_len(&header.sections) as usize;
    pages::expect_zeros(&parts[0], checksums_end, header.sections[0].offset as usize)?;
    Paged::new(ribbon, &tails, &header.sections[1..])
}

struct LastPage<'a, P, R> {
    filter: &'a PagedFilter,
    read: R,
    last: Option<(u64, P)>,
}

impl<P: AsRef<[u8]>, E, R: FnMut(&Page) -> Result<P, E>> LastPage<'_, P, R> {
    fn read(&mut self, section: usize, mut at: u64, mut out: &mut [u8]) -> Result<bool, E> {
        while !out.is_empty() {
            let PagedFilter { header, .. } = self.filter;
            let Some(page) = Page::holding(header, self.filter.checksums(), section, at) else {
                return Ok(false);
            };
            let bytes = match self.last.take() {
                Some((offset, bytes)) if offset == page.offset => bytes,
                _ => (self.read)(&page)?,
            };
            let within = (at % PAGE_BYTES) as usize;
            let len = out.len().min(page.len - within);
            let (part, rest) = out.split_at_mut(len);
            match bytes.as_ref().get(within..within + len) {
                Some(bytes) => part.copy_from_slice(bytes),
                None => return Ok(false),
            }
            self.last = Some((page.offset, bytes));
            (out, at) = (rest, at + len as u64);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frozen::tests::reseal;
    use super::super::{Filter, FilterBuilder};
    use super::*;
    use crate::checksum::FileId;

    const OWNER: FileId = [6; 16];
    const SEED: u64 = 77;

    fn builder(kind: Kind, keys: u64) -> FilterBuilder {
        let mut builder = FilterBuilder::new(kind, 10.0, SEED, 5, OWNER).unwrap();
        (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
        builder
    }

    fn block(kind: Kind, keys: u64) -> Vec<u8> {
        builder(kind, keys).finish().unwrap()
    }

    fn ribbon(keys: u64, columns: f64, groups: usize) -> Vec<u8> {
        builder(Kind::Ribbon, keys).columns(columns).unwrap().column_groups(groups).finish().unwrap()
    }

    fn open(block: &[u8], expect: Expect) -> Result<PagedFilter, DecodeError> {
        let len = block.len() as u64;
        PagedFilter::open(parts(block, &PagedFilter::needs(block, len)?), len, expect)
    }

    fn parts(block: &[u8], needs: &[Range<u64>]) -> Vec<Vec<u8>> {
        needs.iter().map(|part| block[part.start as usize..part.end as usize].to_vec()).collect()
    }

    /// Returns the answer and the number of pages read.
    fn probe(filter: &PagedFilter, block: &[u8], hash: u64) -> (Result<bool, DecodeError>, u32) {
        let mut pages = 0;
        let answer = filter.may_contain(hash, |page| {
            pages += 1;
            let bytes = &block[page.offset as usize..][..page.len];
            page.verify(bytes).map(|()| bytes)
        });
        (answer, pages)
    }

    fn absent(count: u64) -> impl Iterator<Item = u64> {
        (1 << 40..(1u64 << 40) + count).map(|key| key_hash(SEED, &key.to_le_bytes()))
    }

    fn present(keys: u64, step: usize) -> impl Iterator<Item = u64> {
        (0..keys).step_by(step).map(|key| key_hash(SEED, &key.to_le_bytes()))
    }

    /// Compares the answers, and returns the mean number of pages for an absent key.
    fn compare(block: &[u8], keys: u64, expect: Expect) -> f64 {
        let filter = Filter::open(block, expect).unwrap();
        let paged = open(block, expect).unwrap();
        for hash in present(keys, 1 + keys as usize / 20_000) {
            assert!(probe(&paged, block, hash).0.unwrap(), "{paged:?}");
        }
        let mut pages = 0;
        for hash in absent(50_000) {
            let (answer, read) = probe(&paged, block, hash);
            assert_eq!(answer.unwrap(), filter.may_contain(hash), "{paged:?}");
            pages += read;
        }
        for groups in 1..=filter.column_groups() {
            let first = &block[..filter.header().column_groups_len(groups) as usize];
            let first = Filter::open_groups(first, expect, groups).unwrap();
            let mut pages = 0;
            for hash in absent(10_000).chain(present(keys, 1 + keys as usize / 1000)) {
                let answer = first.may_contain(hash)
                    && paged
                        .may_contain_after(groups, hash, |page| {
                            pages += 1;
                            let bytes = &block[page.offset as usize..][..page.len];
                            page.verify(bytes).map(|()| bytes)
                        })
                        .unwrap();
                assert_eq!(answer, filter.may_contain(hash), "{paged:?} {groups}");
            }
            assert!(groups < filter.column_groups() || pages == 0, "{paged:?}");
        }
        assert_eq!(paged.predicted_rate(), filter.predicted_rate());
        f64::from(pages) / 50_000.0
    }

    #[test]
    fn answers_are_those_of_the_filter_in_memory() {
        for keys in [0, 1, 2, 300, 5000, 20_000, 500_000] {
            for kind in Kind::ALL {
                let expect = Expect::table(OWNER, SEED, keys);
                let pages = compare(&block(kind, keys), keys, expect);
                let most = if kind == Kind::Bloom { 2.1 } else { 1.05 };
                assert!(pages <= most, "{kind:?} {keys}: {pages}");
                assert!(kind != Kind::BlockedBloom || pages == if keys == 0 { 0.0 } else { 1.0 });
            }
            compare(&block(Kind::Ribbon, keys), keys, Expect::anything());
        }
        for keys in [1, 300, 7000, 40_000] {
            for (columns, groups) in [(1.0, 1), (3.4, 2), (9.7, 3), (16.5, 2), (32.0, 1), (31.2, 3)] {
                compare(&ribbon(keys, columns, groups), keys, Expect::anything());
            }
        }
    }

    #[test]
    fn an_absent_key_takes_one_page_of_a_ribbon_filter_and_rarely_two() {
        for keys in [3000, 6000, 20_000, 500_000] {
            for columns in [7.0, 8.0, 8.5, 10.0, 10.3, 12.0, 16.0, 16.5] {
                let pages = compare(&ribbon(keys, columns, 1), keys, Expect::anything());
                // With up to 6000 keys, windows have 128 slots in three blocks.
                let most = if keys <= 6000 && columns > 16.0 { 1.06 } else { 1.05 };
                assert!((1.0..=most).contains(&pages), "{keys} keys, {columns} columns: {pages}");
            }
        }
        for (columns, groups, first, most) in [
            (8.0, 2, 0, 1.09),
            (6.0, 2, 5, 1.05),
            (8.0, 2, 5, 1.05),
            (10.0, 2, 5, 1.05),
            (16.0, 3, 5, 1.05),
            (16.0, 2, 5, 1.03),
        ] {
            let builder = builder(Kind::Ribbon, 500_000).columns(columns).unwrap();
            let block = builder.column_groups(groups).first_group(first).finish().unwrap();
            let pages = compare(&block, 500_000, Expect::anything());
            assert!((1.0..=most).contains(&pages), "{columns} columns in {groups} groups: {pages}");
        }
    }

    #[test]
    fn little_of_a_filter_is_in_memory() {
        for (kind, most) in [(Kind::Bloom, 0.001), (Kind::BlockedBloom, 0.001), (Kind::Ribbon, 0.003)] {
            let block = block(kind, 500_000);
            let filter = open(&block, Expect::anything()).unwrap();
            let share = (filter.head.len() - HEADER_BYTES) as f64 / block.len() as f64;
            assert!(share < most, "{kind:?}: {share}");
            let read: u64 =
                PagedFilter::needs(&block, block.len() as u64).unwrap().iter().map(|p| p.end - p.start).sum();
            assert!(read < filter.memory_bytes() as u64 + 3 * 8192);
        }
    }

    #[test]
    fn a_flipped_bit_in_any_byte_is_damage_or_of_no_answer() {
        for (block, hashes) in [
            (block(Kind::Bloom, 3400), 40),
            (block(Kind::BlockedBloom, 3400), 40),
            (ribbon(700, 8.0, 1), 40),
            (ribbon(7000, 3.0, 2), 10),
            (block(Kind::Ribbon, 0), 3),
        ] {
            let keys = Header::decode(&block).unwrap().key_count;
            let expect = Expect::table(OWNER, SEED, keys);
            let hashes: Vec<u64> = present(keys, 300).chain(absent(hashes)).collect();
            let right = open(&block, expect).unwrap();
            let answers: Vec<bool> =
                hashes.iter().map(|&hash| probe(&right, &block, hash).0.unwrap()).collect();
            let mut damaged = block.clone();
            let mut found = 0;
            for byte in 0..block.len() {
                damaged[byte] ^= 1 << (byte % 8);
                match open(&damaged, expect) {
                    Err(_) => found += 1,
                    Ok(filter) => {
                        let mut is_met = false;
                        for (&hash, &answer) in hashes.iter().zip(&answers) {
                            match probe(&filter, &damaged, hash).0 {
                                Ok(found) => assert_eq!(found, answer, "byte {byte}"),
                                Err(error) => {
                                    assert_eq!(error.what, "filter page");
                                    is_met = true;
                                }
                            }
                        }
                        found += usize::from(is_met);
                    }
                }
                damaged[byte] = block[byte];
            }
            assert!(found * 2 > block.len(), "{found} of {}", block.len());
        }
    }

    #[test]
    fn another_length_or_parts_that_are_cut_are_an_error() {
        for block in [block(Kind::Bloom, 9000), block(Kind::BlockedBloom, 20), ribbon(9000, 9.0, 3)] {
            let len = block.len() as u64;
            for wrong in [0, len - 1, len + 1, u64::MAX] {
                assert_eq!(PagedFilter::needs(&block, wrong).unwrap_err().what, "filter block length");
            }
            assert!(PagedFilter::needs(&block[..255], len).is_err());
            let parts = parts(&block, &PagedFilter::needs(&block, len).unwrap());
            let expect = Expect::table(OWNER, SEED, Header::decode(&block).unwrap().key_count);
            PagedFilter::open(parts.clone(), len, expect).unwrap();
            assert!(PagedFilter::open(parts[..parts.len() - 1].to_vec(), len, expect).is_err());
            assert!(PagedFilter::open(Vec::new(), len, expect).is_err());
            for index in 0..parts.len() {
                for cut in 0..parts[index].len() {
                    let mut parts = parts.clone();
                    parts[index].truncate(cut);
                    assert!(PagedFilter::open(parts, len, expect).is_err());
                }
            }
            for wrong in [Expect::table([7; 16], SEED, 9000), Expect::table(OWNER, SEED, 21)] {
                assert!(PagedFilter::open(parts.clone(), len, wrong).is_err());
            }
        }
    }

    #[test]
    fn a_header_that_claims_more_than_there_is_allocates_nothing() {
        let mut lying = block(Kind::BlockedBloom, 100);
        let lines = 1u64 << 50;
        let layout = super::super::layout::Layout::of(&[lines * 64]).unwrap();
        lying[80..88].copy_from_slice(&lines.to_le_bytes());
        lying[128..136].copy_from_slice(&layout.offsets[0].to_le_bytes());
        lying[136..144].copy_from_slice(&layout.lens[0].to_le_bytes());
        lying[32..40].copy_from_slice(&layout.block_len.to_le_bytes());
        reseal(&mut lying);
        assert_eq!(PagedFilter::needs(&lying, lying.len() as u64).unwrap_err().what, "filter block length");
        assert!(PagedFilter::open(vec![lying], layout.block_len, Expect::anything()).is_err());
    }

    #[test]
    fn a_page_that_is_short_or_not_read_is_never_absent() {
        for kind in Kind::ALL {
            let block = block(kind, 5000);
            let filter = open(&block, Expect::anything()).unwrap();
            for hash in absent(1000) {
                assert_eq!(filter.may_contain(hash, |_| Err::<&[u8], _>("unreadable")), Err("unreadable"));
                assert_eq!(filter.may_contain(hash, |_| Ok::<_, ()>([])), Ok(true));
            }
        }
    }

    #[test]
    fn a_filter_that_could_not_be_built_says_maybe_and_reads_nothing() {
        let mut builder = FilterBuilder::new(Kind::Ribbon, 10.0, SEED, 5, OWNER).unwrap();
        (0..100).for_each(|_| builder.add_hash(9));
        let mut header = Header::decode(&builder.finish().unwrap()).unwrap();
        (header.size, header.rate, header.block_len, header.plain_blocks) = (0, u64::MAX, 256, 0);
        (header.column_groups, header.attempt, header.sections) = ([0; 3], 0, Vec::new());
        let block = header.encode();
        let filter = open(&block, Expect::table(OWNER, SEED, 100)).unwrap();
        assert!(filter.header().answers_only_maybe());
        assert!(absent(100).all(|hash| probe(&filter, &block, hash) == (Ok(true), 0)));
    }
}
