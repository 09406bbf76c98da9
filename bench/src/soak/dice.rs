use sievedb::{FilterKind, FilterPolicy, KeyspaceOptions};

use crate::random::{below, number};

#[derive(Debug, Clone)]
pub(super) struct Dice(u64, u64);

impl Dice {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(number(stream, seed) >> 40, 0)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.1 += 1;
        below(number(self.0, self.1), end)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub(super) fn keyspace_options(dice: &mut Dice) -> KeyspaceOptions {
    KeyspaceOptions::new()
        .filter(filter_policy(dice))
        .block_bytes([1 << 10, 4 << 10][dice.below(2) as usize])
        .memtable_bytes([64 << 10, 256 << 10, 512 << 10][dice.below(3) as usize])
        .table_bytes([64 << 10, 256 << 10][dice.below(2) as usize])
        .level_base_bytes([256 << 10, 1 << 20][dice.below(2) as usize])
        .l0_runs(1 + dice.below(4) as usize)
        .level_ratio(2 + dice.below(6))
}

pub(super) fn filter_policy(dice: &mut Dice) -> FilterPolicy {
    let kind = FilterKind::ALL[dice.below(FilterKind::ALL.len() as u64) as usize];
    FilterPolicy::new(kind).bits_per_key([4.0, 10.0, 17.5][dice.below(3) as usize])
}
