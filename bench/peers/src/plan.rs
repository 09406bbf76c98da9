use crate::keys::{ABSENT, KeySet};
use crate::random::{Random, Zipf, below, mix};
use crate::workload::{Absent, Choice, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Present,
    Absent,
    Near,
    Either,
    Put,
    Change,
    Delete,
    /// Increments the first eight bytes of a value, in a transaction with other keys.
    Add,
    Scan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) entries: u16,
    pub(crate) number: u32,
}

impl Step {
    fn new(kind: Kind, number: u64) -> Self {
        Self { kind, entries: 0, number: number as u32 }
    }

    fn scan(number: u64, entries: usize) -> Self {
        Self { kind: Kind::Scan, entries: entries as u16, number: number as u32 }
    }

    #[inline]
    pub(crate) fn write_key(self, keys: KeySet, key: &mut Vec<u8>) {
        match self.kind {
            Kind::Absent => keys.write(ABSENT + self.number, key),
            Kind::Near => {
                keys.write(self.number, key);
                keys.miss_nearly(self.number, key);
            }
            _ => keys.write(self.number, key),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) work: Work,
    pub(crate) keys: u32,
    pub(crate) clients: usize,
    pub(crate) steps: usize,
}

const YCSB_SCAN_MAX: u64 = 100;

impl Plan {
    pub(crate) fn of_client(&self, client: usize, warm_up: bool) -> Vec<Step> {
        let count = self.steps / self.clients;
        let mut random = Random::new(100 + 2 * client as u64 + u64::from(warm_up));
        let keys = u64::from(self.keys);
        let zipf = Zipf::new(keys);
        let popular = |random: &mut Random| below(mix(50, zipf.draw(random)), keys);
        match self.work {
            Work::Fill { .. } => {
                let numbers = (0..count as u64).map(|step| step * self.clients as u64 + client as u64);
                numbers.map(|number| Step::new(Kind::Put, number)).collect()
            }
            Work::Get { present_percent, present, absent, .. } => std::iter::repeat_with(|| {
                if random.below(100) < present_percent {
                    let number = match present {
                        Choice::Uniform => random.below(keys),
                        Choice::Zipf => popular(&mut random),
                    };
                    return Step::new(Kind::Present, number);
                }
                match absent {
                    Absent::Uniform => Step::new(Kind::Absent, random.below(u64::from(ABSENT))),
                    Absent::Near => Step::new(Kind::Near, random.below(keys)),
                    Absent::Skewed => Step::new(Kind::Absent, popular(&mut random)),
                }
            })
            .take(count)
            .collect(),
            Work::Scan { entries } => {
                std::iter::repeat_with(|| Step::scan(random.below(keys), entries)).take(count).collect()
            }
            Work::Ycsb(letter) => self.ycsb(letter, count, warm_up, &mut random),
            Work::Delete if !warm_up => {
                let mut numbers: Vec<u32> = (0..self.keys).collect();
                for place in (1..numbers.len()).rev() {
                    numbers.swap(place, random.below(place as u64 + 1) as usize);
                }
                numbers.truncate(count);
                numbers.into_iter().map(|number| Step::new(Kind::Delete, number.into())).collect()
            }
            Work::DeleteMixed if !warm_up => std::iter::repeat_with(|| {
                let kind = [Kind::Either, Kind::Either, Kind::Put, Kind::Delete][random.below(4) as usize];
                Step::new(kind, random.below(keys))
            })
            .take(count)
            .collect(),
            Work::Add { counters, among, .. } if !warm_up => {
                let mut steps: Vec<Step> = Vec::with_capacity(count);
                while steps.len() + counters <= count {
                    let begun = steps.len();
                    while steps.len() < begun + counters {
                        let number = match among {
                            Some(among) => random.below(u64::from(among).min(keys)),
                            None => {
                                let clients = self.clients as u64;
                                random.below(keys / clients) * clients + client as u64
                            }
                        };
                        let step = Step::new(Kind::Add, number);
                        if !steps[begun..].contains(&step) {
                            steps.push(step);
                        }
                    }
                }
                steps
            }
            Work::Delete | Work::DeleteMixed | Work::Add { .. } => {
                std::iter::repeat_with(|| Step::new(Kind::Present, random.below(keys))).take(count).collect()
            }
            Work::FullScan { .. } | Work::Open => Vec::new(),
        }
    }

    /// The core workloads of Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010. New keys get numbers after the
    /// existing ones.
    fn ycsb(&self, letter: char, count: usize, warm_up: bool, random: &mut Random) -> Vec<Step> {
        let mut keys = u64::from(self.keys);
        let zipf = Zipf::new(keys);
        let mut steps = Vec::with_capacity(count);
        for _ in 0..count {
            let rank = zipf.draw(random);
            let popular = below(mix(50, rank), u64::from(self.keys));
            let percent = if warm_up { 99 } else { random.below(100) };
            steps.push(match letter {
                'a' if percent < 50 => Step::new(Kind::Put, popular),
                'b' if percent < 5 => Step::new(Kind::Put, popular),
                'f' if percent < 50 => Step::new(Kind::Change, popular),
                'd' | 'e' if percent < 5 => {
                    keys += 1;
                    Step::new(Kind::Put, keys - 1)
                }
                'd' => Step::new(Kind::Present, keys - 1 - rank),
                'e' => Step::scan(popular, 1 + random.below(YCSB_SCAN_MAX) as usize),
                _ => Step::new(Kind::Present, popular),
            });
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Adding;

    const HOW: Adding = Adding { yields: false, synced: false };

    fn steps(work: Work, clients: usize, client: usize) -> Vec<Step> {
        Plan { work, keys: 10_000, clients, steps: 40_000 }.of_client(client, false)
    }

    fn share(steps: &[Step], kind: Kind) -> f64 {
        steps.iter().filter(|step| step.kind == kind).count() as f64 / steps.len() as f64
    }

    #[test]
    fn writers_share_the_keys_among_them() {
        let fill = Work::Fill { ascending: false, batch: 1, synced: false };
        let mut numbers: Vec<_> =
            (0..8).flat_map(|client| steps(fill, 8, client)).map(|step| step.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..40_000));
    }

    #[test]
    fn as_many_present_keys_are_looked_up_as_asked_for() {
        for percent in [0, 1, 10, 50, 99, 100] {
            let work = Work::Get {
                present_percent: percent,
                present: Choice::Uniform,
                absent: Absent::Uniform,
                batch: 1,
            };
            let share = share(&steps(work, 1, 0), Kind::Present);
            assert!((share - percent as f64 / 100.0).abs() < 0.01, "{percent} %: {share}");
        }
    }

    #[test]
    fn skewed_absent_keys_repeat_and_uniform_ones_do_not() {
        let different = |absent| {
            let work = Work::Get { present_percent: 0, present: Choice::Uniform, absent, batch: 1 };
            let mut numbers: Vec<_> = steps(work, 1, 0).iter().map(|step| step.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        };
        assert!(different(Absent::Uniform) > 39_900);
        assert!(different(Absent::Skewed) < 10_000);
    }

    #[test]
    fn the_core_workloads_have_their_shares() {
        for (letter, kind, expected) in [
            ('a', Kind::Put, 0.5),
            ('b', Kind::Put, 0.05),
            ('c', Kind::Put, 0.0),
            ('d', Kind::Put, 0.05),
            ('e', Kind::Scan, 0.95),
            ('f', Kind::Change, 0.5),
        ] {
            let share = share(&steps(Work::Ycsb(letter), 1, 0), kind);
            assert!((share - expected).abs() < 0.02, "{letter}: {share}");
        }
    }

    #[test]
    fn the_latest_keys_are_read_after_they_were_written() {
        let mut written = 10_000;
        for step in steps(Work::Ycsb('d'), 1, 0) {
            match step.kind {
                Kind::Put => {
                    assert_eq!(step.number, written);
                    written += 1;
                }
                _ => assert!(step.number < written),
            }
        }
        assert!(written > 11_000);
    }

    #[test]
    fn a_warm_up_changes_nothing_and_has_other_keys() {
        let add = Work::Add { counters: 3, among: None, how: HOW };
        for work in [Work::Delete, Work::DeleteMixed, add, Work::Ycsb('a'), Work::Ycsb('d'), Work::Ycsb('f')]
        {
            let plan = Plan { work, keys: 10_000, clients: 1, steps: 1000 };
            let warm = plan.of_client(0, true);
            assert!(warm.iter().all(|step| matches!(step.kind, Kind::Present | Kind::Scan)), "{work:?}");
            assert_ne!(warm, plan.of_client(0, false));
        }
    }

    #[test]
    fn a_transaction_has_different_counters_and_clients_have_their_own() {
        let add = |among| Work::Add { counters: 3, among, how: HOW };
        for client in 0..4 {
            for among in [None, Some(4), Some(1000)] {
                let steps = steps(add(among), 4, client);
                assert_eq!(steps.len(), 9999, "whole transactions of 10,000 steps");
                for together in steps.chunks(3) {
                    let [one, two, three] = [0, 1, 2].map(|place| together[place].number);
                    assert!(one != two && two != three && one != three, "{together:?}");
                    let fits = |number: u32| match among {
                        Some(among) => number < among,
                        None => number < 10_000 && number as usize % 4 == client,
                    };
                    assert!([one, two, three].into_iter().all(fits), "{together:?}");
                }
            }
        }
    }

    #[test]
    fn no_key_is_deleted_twice() {
        let mut numbers: Vec<_> = steps(Work::Delete, 1, 0).iter().map(|step| step.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..10_000));
    }
}
