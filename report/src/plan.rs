//! The memory of a keyspace's filters and the wasted reads of an absent lookup. The store's planner computes the best
//! allocation and a uniform one, with ribbon filters on every run. The results are upper bounds, because every run is
//! assumed to cover all keys.

use sievedb::filter::Kind;
use sievedb::filter::allocation::{Allocation, Share, Total, allocate, uniform};
use sievedb::inspect::tree::{KeyspaceShape, RunShape};

use crate::chart::{self, Chart, Curve};

pub(crate) struct Plan {
    shares: Vec<Share>,
    pub(crate) keys: u64,
    pub(crate) filter_bytes: u64,
    pub(crate) wasted: f64,
}

impl Plan {
    pub(crate) fn of(keyspace: &KeyspaceShape) -> Self {
        let runs = &keyspace.runs;
        Self {
            shares: runs.iter().map(|run| Share::new(Kind::Ribbon, run.keys(), 1.0)).collect(),
            keys: runs.iter().map(RunShape::keys).fold(0, u64::saturating_add),
            filter_bytes: runs.iter().map(RunShape::filter_bytes).fold(0, u64::saturating_add),
            wasted: runs.iter().map(RunShape::rate).sum(),
        }
    }

    pub(crate) fn bits_per_key(&self) -> f64 {
        8.0 * self.filter_bytes as f64 / self.keys.max(1) as f64
    }

    pub(crate) fn best(&self, bits: f64) -> f64 {
        self.wasted_by(bits, allocate)
    }

    fn wasted_by(&self, bits: f64, planner: fn(&[Share], Total) -> Allocation) -> f64 {
        Total::bits_per_key(bits).map_or(f64::NAN, |total| planner(&self.shares, total).wasted_reads)
    }

    /// The smallest size, to a tenth of a bit per key, whose best allocation wastes no more reads than the present
    /// filters.
    pub(crate) fn bits_for_the_same(&self) -> f64 {
        // The sizes are not listed, because a manifest may contain a filter of any length.
        let most = (10.0 * self.bits_per_key()) as u32;
        let (mut fewest, mut end) = (0, most);
        while fewest < end {
            let middle = fewest + (end - fewest) / 2;
            if self.best(f64::from(middle) / 10.0) > self.wasted {
                fewest = middle + 1;
            } else {
                end = middle;
            }
        }
        if fewest < most { f64::from(fewest) / 10.0 } else { self.bits_per_key() }
    }
}

pub(crate) fn draw(plan: &Plan) -> Chart {
    let now = plan.bits_per_key();
    let bits = chart::bits(now);
    let curves = [
        Curve {
            class: "even",
            name: "the same bits for every key",
            values: bits.iter().map(|&bits| plan.wasted_by(bits, uniform)).collect(),
        },
        Curve {
            class: "best",
            name: "best allocation to the runs",
            values: bits.iter().map(|&bits| plan.best(bits)).collect(),
        },
    ];
    let points = [("here", "you are here", plan.wasted), ("goal", "optimum", plan.best(now))];
    chart::draw("wasted reads", plan.keys, &bits, &curves, now, &points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table};

    fn plan() -> Plan {
        Plan::of(&keyspace(
            "default",
            vec![(0, vec![table(1, 1000)]), (1, vec![table(2, 10_000), table(3, 90_000)])],
        ))
    }

    #[test]
    fn the_best_allocation_wastes_no_more_than_the_same_bits_for_every_key() {
        let plan = plan();
        assert!((plan.wasted - 0.002).abs() < 1e-12 && (plan.bits_per_key() - 10.0).abs() < 0.01);
        for bits in [0.0, 1.0, 5.5, 10.0, 20.0] {
            assert!(plan.best(bits) <= plan.wasted_by(bits, uniform) + 1e-12, "{bits}");
        }
    }

    #[test]
    fn the_bits_for_the_same_waste_are_the_fewest() {
        let plan = plan();
        let bits = plan.bits_for_the_same();
        assert!(bits < plan.bits_per_key() && plan.best(bits) <= plan.wasted, "{bits}");
        assert!(plan.best(bits - 0.1) > plan.wasted, "{bits}");
    }

    #[test]
    fn a_filter_of_any_length_has_bits_for_the_same_waste() {
        let mut huge = table(1, 1);
        huge.filters[0].bytes = u64::MAX;
        let plan = Plan::of(&keyspace("default", vec![(0, vec![huge])]));
        let bits = plan.bits_for_the_same();
        assert!((1.0..100.0).contains(&bits), "{bits}");
        draw(&plan);
    }

    #[test]
    fn the_optimum_is_below_the_present_filters_at_the_same_bits() {
        let chart = draw(&plan());
        let [here, optimum] = &chart.points[..] else { panic!() };
        assert!(here.mark.left == optimum.mark.left && here.mark.bottom > optimum.mark.bottom);
        assert_eq!(here.mark.words, "0.00200");
    }

    #[test]
    fn a_keyspace_without_filters_or_tables_has_a_chart() {
        let mut bare = table(1, 10);
        bare.filters.clear();
        let bare = draw(&Plan::of(&keyspace("default", vec![(0, vec![bare])])));
        assert_eq!((&bare.points[0].mark.words[..], bare.points[0].mark.left), ("1.00", 0.0));
        draw(&Plan::of(&keyspace("default", vec![])));
    }
}
