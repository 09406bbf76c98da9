//! Fuzz target of filter blocks, and shared helpers.
//!
//! # Strategy
//!
//! The first byte selects how the other bytes make a block:
//!
//! 0. *raw*: unchanged.
//! 1. *resealed*: with corrected checksums.
//! 2. *forged*: header parameters, then bits. This reaches every valid geometry.
//! 3. *built*: the filter of keys from the input, damaged in one place.
//!
//! # Invariants
//!
//! - A decoded header encodes to the same bytes.
//! - All ways of probing give the same answer. With fewer column groups, every "maybe" is kept.
//! - Damaged pages never turn "maybe" into "absent".
//! - A filter combined with itself gives the same answers.
//! - A wrong owner, seed, key count or header is rejected.
//! - A built filter has every added key. A changed filter is rejected.
//! - Memory is bounded by a block's actual length.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use byteorder::{BigEndian, ByteOrder, LittleEndian};

use crate::codec::DecodeError;
use crate::forge::{self, forge};
use crate::hash::key_hash;
use crate::header::HEADER_BYTES;
use crate::{Expect, Filter, FilterBuilder, Header, Kind, Page, PagedFilter, Sizes, header};

mod input;
mod reseal;

pub use input::Input;
pub use reseal::reseal;

const FORGED_BYTES_MAX: usize = 256 << 10;

const OWNER: [u8; 16] = [3; 16];

/// Runs an input of the target `filter`.
pub fn filter(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => check(input.rest()),
        1 => {
            let mut block = input.rest().to_vec();
            reseal(&mut block, |place, sum| place.copy_from_slice(sum));
            check(&block);
        }
        2 => {
            if let Some(block) = forged(&mut input) {
                assert!(Header::decode(&block).is_ok(), "a forged header is valid");
                check(&block);
            }
        }
        _ => built(&mut input),
    }
}

fn kind(input: &mut Input<'_>) -> Kind {
    Kind::ALL[input.below(Kind::ALL.len())]
}

/// Small and very large numbers are equally likely.
fn scaled(input: &mut Input<'_>) -> u64 {
    let bits = u32::from(input.u8()) % 65;
    if bits == 0 { 0 } else { input.u64() >> (64 - bits) }
}

fn forged(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let kind = kind(input);
    let mut header = forge::header(kind, OWNER);
    header.optional_flags = input.u8().into();
    header.seed = input.u8().into();
    header.salt = input.u8().into();
    header.key_count = scaled(input);
    header.rate = scaled(input);
    header.size = scaled(input);
    header.probes = input.u8();
    match kind {
        // Unused bits of the last byte must be zero.
        Kind::Bloom => header.size &= !63,
        Kind::Ribbon => {
            header.probes = 0;
            header.attempt = input.u16();
            header.plain_blocks = scaled(input);
            for columns in header.column_groups.iter_mut().take(input.below(4)) {
                *columns = input.u8() % 34;
            }
            for buckets in header.buckets.iter_mut().take(input.below(5)) {
                *buckets = scaled(input);
            }
        }
        _ => {}
    }
    forge(header, input.rest(), FORGED_BYTES_MAX)
}

fn hashes(salt: u64) -> impl Iterator<Item = u64> {
    let ends = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, u64::from(u32::MAX)];
    let spread = (1..40u64).map(move |n| n.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ends.into_iter().chain(spread)
}

fn check(block: &[u8]) {
    let _ = (header::block_len(block), header::checksum(block));
    let Ok(found) = Header::decode(block) else {
        assert!(Filter::open(block, Expect::anything()).is_err());
        return;
    };
    assert_eq!(found.encode(), block[..HEADER_BYTES], "a header has one encoding");
    assert_eq!(header::block_len(block), Ok(found.block_len));
    let _ = (found.bits(), found.answers_only_maybe());
    let sizes = Sizes::of(&found);
    let _ = (sizes.overhead_of_sections(), sizes.overhead_of_block());
    for groups in 0..4 {
        let len = usize::try_from(found.prefix_len(1 + groups)).unwrap_or(usize::MAX);
        if let Some(prefix) = block.get(..len)
            && let Ok(filter) = Filter::open_groups(prefix, Expect::anything(), groups)
        {
            probe(&filter);
        }
    }
    let filter = Filter::open(block, Expect::anything());
    probe_by_pages(block, found.salt, filter.as_ref().ok());
    let Ok(filter) = filter else { return };
    let _ = (filter.verify(), filter.predicted_rate());
    probe(&filter);
    combine(&filter);
    expect_only_what_is_known(block, &found);
    for groups in 1..=filter.column_groups() {
        let fewer = filter.keep_groups(groups);
        let len = usize::try_from(found.prefix_len(1 + groups)).expect("it is in memory");
        let opened =
            Filter::open_groups(&block[..len], Expect::anything(), groups).expect("its beginning opens");
        for hash in hashes(found.salt) {
            assert_eq!(fewer.may_contain(hash), opened.may_contain(hash));
            assert!(
                fewer.may_contain(hash) || !filter.may_contain(hash),
                "fewer columns rule out fewer keys"
            );
        }
    }
}

fn probe(filter: &Filter<&[u8]>) {
    let hashes: Vec<u64> = hashes(filter.header().salt).collect();
    let portable = filter.clone().portable();
    let mut many = vec![false; hashes.len()];
    filter.may_contain_many(&hashes, &mut many);
    for (&hash, many) in hashes.iter().zip(many) {
        filter.prefetch(hash);
        let answer = filter.may_contain(hash);
        assert_eq!((answer, answer), (portable.may_contain(hash), many));
    }
    if filter.key_count() == 0 {
        assert!(filter.may_contain(7), "the caller did not confirm that there are no keys");
    }
}

fn open_paged(block: &[u8], expect: Expect) -> Result<PagedFilter, DecodeError> {
    let needs = PagedFilter::needs(block, block.len() as u64)?;
    let part = |part: &Range<u64>| block[part.start as usize..part.end as usize].to_vec();
    PagedFilter::open(needs.iter().map(part).collect(), block.len() as u64, expect)
}

fn probe_page(filter: &PagedFilter, block: &[u8], hash: u64) -> Result<bool, DecodeError> {
    let mut pages = 0;
    let read = |page: &Page| {
        pages += 1;
        let bytes = &block[page.offset as usize..][..page.len];
        page.verify(bytes).map(|()| bytes)
    };
    let answer = filter.may_contain(hash, read);
    assert!(pages <= 30, "a query reads a bounded number of pages");
    answer
}

fn probe_by_pages(block: &[u8], salt: u64, whole: Option<&Filter<&[u8]>>) {
    let Ok(paged) = open_paged(block, Expect::anything()) else {
        assert!(whole.is_none(), "a block that opens whole opens by pages");
        return;
    };
    for hash in hashes(salt) {
        let answer = probe_page(&paged, block, hash);
        if let Some(whole) = whole {
            assert_eq!(answer, Ok(whole.may_contain(hash)));
        }
    }
}

fn combine(filter: &Filter<&[u8]>) {
    let _ = filter.estimate_key_count();
    for combined in [filter.union(filter, OWNER), filter.intersection(filter, OWNER)] {
        let Ok(block) = combined else { continue };
        let combined = Filter::open(&block[..], Expect::anything()).expect("a combined block is a filter");
        for hash in hashes(filter.header().salt) {
            assert_eq!(combined.may_contain(hash), filter.may_contain(hash));
        }
    }
}

fn expect_only_what_is_known(block: &[u8], header: &Header) {
    let (owner, seed, keys) = (header.owner, header.seed, header.key_count);
    let right = Expect::table(owner, seed, keys);
    let other = owner.map(|byte| !byte);
    assert!(Filter::open(block, right.header_checksum(header.checksum)).is_ok());
    for wrong in [
        Expect::table(other, seed, keys),
        Expect::table(owner, !seed, keys),
        Expect::table(owner, seed, !keys),
        right.header_checksum(!header.checksum),
    ] {
        assert!(Filter::open(block, wrong).is_err(), "an unexpected filter is rejected");
    }
}

fn built(input: &mut Input<'_>) {
    let kind = kind(input);
    let (seed, salt) = (input.u8().into(), input.u16().into());
    let bits_per_key = f64::from(input.u8()) / 8.0;
    let groups = input.below(4);
    let (at, mut xor) = (input.u32(), [0; 4]);
    LittleEndian::write_u32(&mut xor, input.u32());
    let Ok(mut builder) = FilterBuilder::new(kind, bits_per_key, seed, salt, OWNER) else { return };
    builder = builder.column_groups(groups);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let numbers = u32::from(input.u16()) % 3000;
    keys.extend((0..numbers).map(|number| {
        let mut key = vec![0; 4];
        BigEndian::write_u32(&mut key, number);
        key
    }));
    while !input.is_empty() {
        keys.push(input.short().to_vec());
    }
    keys.sort();
    keys.dedup();
    keys.iter().for_each(|key| builder.add_key(key));
    let block = builder.finish().expect("a filter can be built");
    let expect = Expect::table(OWNER, seed, keys.len() as u64);
    let filter = Filter::open(&block[..], expect).expect("a built filter opens");
    filter.verify().expect("a built filter verifies");
    assert!(keys.iter().all(|key| filter.may_contain(key_hash(seed, key))), "an added key is found");

    let mut damaged = block.clone();
    let start = at as usize % damaged.len();
    for (byte, xor) in damaged[start..].iter_mut().zip(xor) {
        *byte ^= xor;
    }
    let changed = damaged != block;
    let opened = Filter::open(&damaged[..], expect);
    assert!(changed == opened.is_err(), "a changed filter is rejected");
    if let Ok(paged) = open_paged(&damaged, expect) {
        let denied = |key: &Vec<u8>| probe_page(&paged, &damaged, key_hash(seed, key)) == Ok(false);
        assert!(!keys.iter().any(denied), "damage makes no key absent");
    }
    let cut = &block[..start];
    assert!(Filter::open(cut, expect).is_err(), "a truncated filter is rejected");
    check(&damaged);
}
