//! Searches for false negatives over kinds, sizes and seeds, with and without vector instructions, and in batches.

use super::contender::Contender;
use super::lane::{Mode, ask};
use crate::Result;
use crate::random::number;

const SIZES: [u64; 12] = [1, 2, 3, 63, 64, 100, 257, 1_000, 6_001, 20_000, 100_000, 1_000_000];

#[derive(Debug, Default)]
pub(super) struct Negatives {
    pub(super) probes: u64,
    pub(super) filters: u64,
    pub(super) wrong: u64,
}

pub(super) fn run(probes: u64) -> Result<Negatives> {
    let mut seen = Negatives::default();
    for seed in 0.. {
        for contender in [Contender::Ribbon8, Contender::Ribbon10, Contender::Blocked, Contender::Bloom] {
            for keys in SIZES {
                let hashes: Vec<u64> = (0..keys).map(|index| number(100 + seed, index)).collect();
                let filter = contender.ours(hashes.iter().copied(), number(99, seed))?;
                let portable = filter.clone().portable();
                let found = [
                    ask(&filter, &hashes, Mode::Present),
                    ask(&filter, &hashes, Mode::Batch),
                    ask(&portable, &hashes, Mode::Present),
                ];
                seen.probes += 3 * keys;
                seen.filters += 1;
                seen.wrong += found.iter().map(|found| keys - found).sum::<u64>();
            }
            if seen.probes >= probes {
                return Ok(seen);
            }
        }
    }
    Ok(seen)
}
