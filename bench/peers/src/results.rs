use std::collections::BTreeMap;

use crate::counts::Counts;
use crate::names::EngineName;
use crate::order::Outcome;
use crate::records::OTHERS_MAX;
use crate::statistics::{Spread, net, ratios};
use crate::workload::Part;

#[derive(Debug, Default)]
pub(crate) struct Row<'a> {
    pub(crate) runs: BTreeMap<EngineName, Vec<&'a Outcome>>,
    pub(crate) counts: BTreeMap<EngineName, &'a Counts>,
}

impl Row<'_> {
    pub(crate) fn rates(&self, engine: EngineName) -> Option<Vec<f64>> {
        let runs = self.runs.get(&engine)?;
        Some(runs.iter().map(|run| run.operations as f64 / run.seconds).collect())
    }

    pub(crate) fn rate(&self, engine: EngineName) -> Option<Spread> {
        Spread::of(self.rates(engine)?)
    }

    pub(crate) fn median(&self, engine: EngineName, figure: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
        let figures: Option<Vec<f64>> = self.runs.get(&engine)?.iter().map(|run| figure(run)).collect();
        Some(Spread::of(figures?)?.median)
    }

    pub(crate) fn best_peer(&self, part: Part) -> Option<EngineName> {
        let rated = self
            .runs
            .keys()
            .filter(|&&engine| engine.is_peer() || part == Part::Transactions && engine == EngineName::Redb)
            .filter_map(|&engine| self.rate(engine).map(|rate| (engine, rate.median)));
        rated.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(engine, _)| engine)
    }

    pub(crate) fn fastest(&self) -> Option<EngineName> {
        let rated = self
            .runs
            .keys()
            .filter(|&&engine| engine != EngineName::Nothing)
            .filter_map(|&engine| self.rate(engine).map(|rate| (engine, rate.median)));
        rated.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(engine, _)| engine)
    }

    /// The ratio to the best peer by round, and that of the medians without the loop's cost.
    pub(crate) fn lead(&self, part: Part) -> (Option<Spread>, Option<f64>) {
        let Some(peer) = self.best_peer(part) else { return (None, None) };
        let pair = self.rates(EngineName::Sievedb).zip(self.rates(peer));
        let seconds = |engine| self.rate(engine).map(|rate| 1.0 / rate.median);
        let of_loop = seconds(EngineName::Nothing).unwrap_or(0.0);
        let net = |engine| seconds(engine).and_then(|seconds| net(seconds, of_loop));
        let net_ratio = net(peer).zip(net(EngineName::Sievedb)).map(|(peer, own)| peer / own);
        (pair.and_then(|(own, peer)| ratios(&own, &peer)), net_ratio)
    }

    pub(crate) fn is_loaded(&self, engine: EngineName) -> bool {
        self.runs.get(&engine).is_some_and(|runs| runs.iter().any(|run| run.others > OTHERS_MAX))
    }
}
