use probabilistic_collections::bloom::{BSBloomFilter, BSSDBloomFilter, RLBSBloomFilter};
use sievedb_sketches::{Sketch, Stable};
use stable_bloom_filter::stable::StableBloomFilter;

use super::lane::{Grow, Set};
use super::{RATE, SEED};
use crate::Result;
use crate::clock::cost;
use crate::random::{bytes_of, number};
use crate::report::{Report, Table, count, mib};
use crate::rounds::digits;

const STREAM: u64 = 4;

impl Grow for Stable {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &bytes_of(key));
    }
}

impl Set for Stable {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &bytes_of(key))
    }

    fn predicted(&self) -> Option<f64> {
        self.summary().predicted_rate
    }
}

pub(super) fn run(keys: u64, report: &mut Report) -> Result<()> {
    let bytes = keys;
    let gaps = [keys / 4, keys / 2, keys];
    report.heading("Infinite streams");
    report.text(&format!(
        "{} for each; {} elements, all new. *Known* is the share of new elements reported as known, in the \
         last half of the stream. *Forgotten* is the share of elements reported as new after so many \
         others. For the Stable filter, the prediction follows the measurement. It has the longest \
         half-life for its memory and rate. Its cells count down from a maximum, so it finds recent \
         elements more often, and old ones less often, than filters that clear random bits (BSBloomFilter, \
         stable-bloom-filter). Peers with a *known* rate far above 1 % exceed their target rate and \
         therefore forget less. stable-bloom-filter is faster; it also exceeds its target rate.",
        mib(bytes),
        count(10 * keys),
    ));
    let mut table = Table::new(
        ["".into(), "known %".to_owned()]
            .into_iter()
            .chain(gaps.map(|gap| format!("forgotten after {} %", count(gap))))
            .chain(["ns per element".into()]),
    );
    let stable = Stable::with_memory(bytes, RATE, SEED)?;
    let predicted =
        std::iter::once(stable.stable_rate()).chain(gaps.map(|gap| stable.expected_forgotten(gap)));
    let predicted: Vec<f64> = predicted.collect();
    table.row(row("**Stable**", stable, keys, gaps, Some(&predicted)));
    table.row(row(
        "stable-bloom-filter",
        StableBloomFilter::new_default(8 * bytes as usize, RATE),
        keys,
        gaps,
        None,
    ));
    let bits = |filters: usize| 8 * bytes as usize / filters;
    let filters = BSBloomFilter::<u64>::new(64, RATE).hasher_count();
    table.row(row(
        "probabilistic-collections BSBloomFilter",
        BSBloomFilter::<u64>::new(bits(filters), RATE),
        keys,
        gaps,
        None,
    ));
    let filters = BSSDBloomFilter::<u64>::new(64, RATE).hasher_count();
    table.row(row(
        "probabilistic-collections BSSDBloomFilter",
        BSSDBloomFilter::<u64>::new(bits(filters), RATE),
        keys,
        gaps,
        None,
    ));
    let filters = RLBSBloomFilter::<u64>::new(64, RATE).hasher_count();
    table.row(row(
        "probabilistic-collections RLBSBloomFilter",
        RLBSBloomFilter::<u64>::new(bits(filters), RATE),
        keys,
        gaps,
        None,
    ));
    report.table(&table);
    Ok(())
}

fn row<S: Grow>(name: &str, mut set: S, keys: u64, gaps: [u64; 3], predicted: Option<&[f64]>) -> Vec<String> {
    let (mut known, mut forgotten) = (0, [0; 3]);
    let half = 5 * keys;
    let (took, ()) = cost(|| (0..half).for_each(|element| set.insert(number(STREAM, element))));
    for element in half..2 * half {
        known += u64::from(set.contains(number(STREAM, element)));
        set.insert(number(STREAM, element));
        for (gap, forgotten) in gaps.iter().zip(&mut forgotten) {
            *forgotten += u64::from(!set.contains(number(STREAM, element - gap)));
        }
    }
    let counts = std::iter::once(known).chain(forgotten);
    let mut row = vec![name.to_owned()];
    row.extend(counts.enumerate().map(|(column, count)| {
        let share = 100.0 * count as f64 / half as f64;
        predicted.map_or(format!("{share:.3}"), |predicted| {
            format!("{share:.3} / {:.3}", 100.0 * predicted[column])
        })
    }));
    row.push(digits(took.as_secs_f64() * 1e9 / half as f64));
    row
}
