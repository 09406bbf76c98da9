use sievedb::hash::key_hash;

use super::contender::{Contender, SEED};
use super::lane::{Mode, ask};
use crate::Result;
use crate::random::{bytes_of, number};
use crate::report::{Table, keys as keys_text};

/// The standard error is about 0.5 %.
const WANTED: f64 = 40_000.0;
const WANTED_FOR_SPACE: f64 = 160_000.0;

const KEYS_MAX: u64 = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Random,
    Sequential,
    SharedPrefix,
}

impl Shape {
    const ALL: [Self; 3] = [Self::Random, Self::Sequential, Self::SharedPrefix];

    fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::SharedPrefix => "shared prefix",
        }
    }

    fn hash(self, index: u64) -> u64 {
        match self {
            Self::Random => key_hash(SEED, &bytes_of(number(5, index))),
            Self::Sequential => key_hash(SEED, &bytes_of(index.swap_bytes())),
            Self::SharedPrefix => {
                let mut key = *b"https://example.org/archive/2026/pages/000000000000.html";
                let mut rest = index;
                for digit in key[39..51].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
                key_hash(SEED, &key)
            }
        }
    }
}

pub(super) struct Rate {
    pub(super) contender: Contender,
    shape: Shape,
    pub(super) keys: u64,
    predicted: f64,
    measured: f64,
    standard_error: f64,
    section_bits: u64,
    block_bits: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) least: f64,
    pub(super) middle: f64,
    pub(super) most: f64,
}

impl Rate {
    pub(super) fn ratio(&self) -> f64 {
        self.measured / self.predicted
    }

    pub(super) fn is_for_space(&self) -> bool {
        is_for_space(self.contender, self.shape)
    }

    pub(super) fn ratio_error(&self) -> f64 {
        2.0 * self.standard_error * self.ratio()
    }

    pub(super) fn measured(&self) -> f64 {
        self.measured
    }

    pub(super) fn measured_interval(&self) -> (f64, f64) {
        let error = 2.0 * self.standard_error;
        (self.measured * (1.0 - error), self.measured * (1.0 + error))
    }

    /// Returns the excess of the sections over `n·log2(1/rate)`, as a fraction.
    pub(super) fn sections_over(&self) -> Interval {
        self.over(self.section_bits)
    }

    /// [`Self::sections_over`] with header, page checksums and padding.
    pub(super) fn block_over(&self) -> Interval {
        self.over(self.block_bits)
    }

    fn over(&self, bits: u64) -> Interval {
        let over = |rate: f64| bits as f64 / (self.keys as f64 * -rate.log2()) - 1.0;
        let (low, high) = self.measured_interval();
        Interval { least: over(low), middle: over(self.measured), most: over(high) }
    }
}

fn is_for_space(contender: Contender, shape: Shape) -> bool {
    shape == Shape::Random && matches!(contender, Contender::Ribbon8 | Contender::Ribbon10)
}

pub(super) fn run(sizes: &[u64]) -> Result<Vec<Rate>> {
    let mut rows = Vec::new();
    for contender in [Contender::Ribbon8, Contender::Ribbon10, Contender::Blocked, Contender::Bloom] {
        for shape in Shape::ALL {
            for &keys in sizes.iter().filter(|&&keys| contender == Contender::Ribbon8 || keys <= KEYS_MAX) {
                rows.push(one(contender, shape, keys)?);
            }
        }
    }
    Ok(rows)
}

fn one(contender: Contender, shape: Shape, keys: u64) -> Result<Rate> {
    let filter = contender.ours((0..keys).map(|index| shape.hash(index)), keys)?;
    let predicted = filter.predicted_rate();
    let wanted = if is_for_space(contender, shape) { WANTED_FOR_SPACE } else { WANTED };
    let part = 1u64 << 16;
    let parts = ((wanted / predicted) as u64).div_ceil(part);
    let mut found = 0;
    for index in 0..parts {
        let start = keys + index * part;
        let hashes: Vec<u64> = (start..start + part).map(|index| shape.hash(index)).collect();
        found += ask(&filter, &hashes, Mode::Batch);
    }
    Ok(Rate {
        contender,
        shape,
        keys,
        predicted,
        measured: found as f64 / (parts * part) as f64,
        standard_error: 1.0 / (found.max(1) as f64).sqrt(),
        section_bits: filter.header().sections.iter().map(|section| section.len * 8).sum(),
        block_bits: filter.as_bytes().len() as u64 * 8,
    })
}

pub(super) fn table(rows: &[Rate]) -> Table {
    let mut table =
        Table::new(["filter", "key shape", "keys", "predicted %", "measured %", "measured ÷ predicted"]);
    for row in rows {
        table.row([
            row.contender.name().into(),
            row.shape.name().into(),
            keys_text(row.keys),
            format!("{:.4}", row.predicted * 100.0),
            format!("{:.4}", row.measured * 100.0),
            format!("{:.4} ± {:.4}", row.ratio(), row.standard_error),
        ]);
    }
    table
}

pub(super) fn space_table(rows: &[Rate]) -> Table {
    let mut table =
        Table::new(["filter", "keys", "measured rate %", "sections over %", "whole block over %"]);
    for row in rows.iter().filter(|row| row.is_for_space()) {
        table.row([
            row.contender.name().into(),
            keys_text(row.keys),
            format!("{:.4}", row.measured * 100.0),
            format!("{:.2}", row.sections_over().middle * 100.0),
            format!("{:.2}", row.block_over().middle * 100.0),
        ]);
    }
    table
}
