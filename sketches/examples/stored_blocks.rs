//! Archives each block of some files once; files are cut by content.
//!
//! Run `cargo run --release --example stored_blocks [FILE..]`. Without files it generates versions of one. A filter in memory
//! reports most new blocks as new; only for others is the archive's index on disk read (Venti: Quinlan and Dorward, FAST 2002;
//! summary vector: Zhu, Li and Patterson, FAST 2008).

use std::collections::HashMap;

use sievedb_sketches::{Scalable, Sketch, hash::key_hash};

/// A block ends where these bits of the rolling hash are 0: every 4 KiB on average.
const CUT: u64 = (1 << 12) - 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let files: Vec<Vec<u8>> = match paths[..] {
        [] => versions(20),
        _ => paths.iter().map(std::fs::read).collect::<Result<_, _>>()?,
    };
    let mut archive: HashMap<u128, Vec<u8>> = HashMap::new();
    let mut known = Scalable::with_rate(0.01, 7)?;
    let (mut bytes, mut blocks, mut asked, mut wasted, mut again) = (0, 0u64, 0u64, 0u64, 0u64);
    for file in &files {
        let mut recipe = Vec::new();
        for block in cut(file) {
            let fingerprint = u128::from(key_hash(1, block)) << 64 | u128::from(key_hash(2, block));
            recipe.push(fingerprint);
            (bytes, blocks) = (bytes + block.len(), blocks + 1);
            if known.contains(&fingerprint.to_le_bytes()) {
                asked += 1;
                if archive.contains_key(&fingerprint) {
                    again += 1;
                    continue;
                }
                wasted += 1;
            }
            known.insert(&fingerprint.to_le_bytes())?;
            archive.insert(fingerprint, block.to_vec());
        }
        let restored: Vec<u8> = recipe.iter().flat_map(|fingerprint| archive[fingerprint].clone()).collect();
        assert!(restored == *file, "a restored file is unchanged");
    }
    let stored: usize = archive.values().map(Vec::len).sum();
    println!("{} files of {bytes} bytes in {blocks} blocks", files.len());
    println!(
        "archived {} blocks of {stored} bytes: {:.1} % of the data",
        archive.len(),
        100.0 * stored as f64 / bytes.max(1) as f64
    );
    println!(
        "the index was read {asked} times instead of {blocks}: {again} blocks were present, {wasted} reads wasted"
    );
    println!("the filter has {} bytes", known.encode().len());
    Ok(())
}

/// Cuts by content, so that an insertion changes only the blocks around it.
fn cut(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = file;
    std::iter::from_fn(move || {
        let mut rolling = 0u64;
        let end = rest.iter().position(|&byte| {
            // A byte leaves the hash after 64 shifts.
            rolling = (rolling << 1).wrapping_add(key_hash(3, &[byte]));
            rolling >> 40 & CUT == 0
        });
        let (block, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        rest = after;
        (!block.is_empty()).then_some(block)
    })
}

fn versions(count: usize) -> Vec<Vec<u8>> {
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut file: Vec<u8> = (0..1 << 20).map(|_| random() as u8).collect();
    (0..count)
        .map(|_| {
            for _ in 0..5 {
                let at = random() % file.len();
                let inserted: Vec<u8> = (0..random() % 100).map(|_| random() as u8).collect();
                file.splice(at..at, inserted);
                let at = random() % file.len();
                file[at] ^= 0x55;
            }
            file.clone()
        })
        .collect()
}
