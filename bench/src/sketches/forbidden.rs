use std::collections::BTreeSet;
use std::path::PathBuf;

use sievedb_sketches::{
    Approximator, Bloom, Counting, Cuckoo, DLeft, Decoder, DifferenceSize, Digest, Error, Expiring,
    GolombSet, HashCompaction, Iblt, Max, Method, Rateless, Ring, Scalable, Sketch, Spectral, Stable,
    StaticMap, certainly_missing,
};

use crate::Result;
use crate::clock::took;
use crate::random::{below, bytes_of, number};
use crate::report::{Report, Table, count};

/// Counts forbidden answers of every structure. Not timed, so other programs may run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Probes of each structure.
    #[arg(long, default_value_t = 100_000_000)]
    queries: u64,
    /// Keys in each structure.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Only structures whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Also writes the report to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

const RATE: f64 = 0.01;

type Round = fn(&Keys) -> Result<Counted>;

struct Keys {
    round: u64,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counted {
    probes: u64,
    forbidden: u64,
}

impl Counted {
    fn of(answers: impl Iterator<Item = bool>) -> Self {
        let mut counted = Self::default();
        answers.for_each(|allowed| {
            counted.probes += 1;
            counted.forbidden += u64::from(!allowed);
        });
        counted
    }
}

impl Keys {
    fn hashable(&self, index: u64) -> [u8; 8] {
        bytes_of(number(100 + self.round, index))
    }

    fn all(&self) -> impl Iterator<Item = [u8; 8]> {
        (0..self.count).map(|index| self.hashable(index))
    }

    fn fill<S>(
        &self,
        mut set: S,
        mut insert: impl FnMut(&mut S, &[u8; 8]) -> Result<(), Error>,
    ) -> Result<S> {
        self.all().try_for_each(|key| insert(&mut set, &key))?;
        Ok(set)
    }

    fn sent<S: Sketch>(set: &S) -> Result<S> {
        S::decode(&set.encode()).map_err(Into::into)
    }

    fn after_removals<S>(
        &self,
        mut set: S,
        remove: impl Fn(&mut S, &[u8; 8]) -> Result<(), Error>,
        allowed: impl Fn(&S, &[u8; 8]) -> bool,
    ) -> Result<Counted> {
        for index in (1..self.count).step_by(2) {
            remove(&mut set, &self.hashable(index))?;
        }
        Ok(Counted::of((0..self.count).step_by(2).map(|index| allowed(&set, &self.hashable(index)))))
    }
}

const LAWS: [(&str, &str, Round); 20] = [
    ("Bloom", "a key that was added is absent", |keys| {
        let set = Bloom::with_rate(keys.count, RATE, keys.round)?;
        let set = Keys::sent(&keys.fill(set, |set, key| {
            set.insert(key);
            Ok(())
        })?)?;
        Ok(Counted::of(keys.all().map(|key| set.contains(&key))))
    }),
    ("Bloom, frozen", "a key that was added is absent from the store's filter block", frozen),
    ("Counting", "a key that was not removed is absent, or counted below 1", |keys| {
        let set = Counting::with_rate(keys.count, RATE, keys.round)?;
        let set = keys.fill(set, |set, key| {
            set.insert(key);
            Ok(())
        })?;
        keys.after_removals(
            set,
            |set, key| set.remove(key),
            |set, key| set.contains(key) && set.count(key) != Some(0),
        )
    }),
    ("Spectral, minimal increase", "a key that was added is counted below 1", |keys| {
        let set = Spectral::with_rate(keys.count, RATE, Method::MinimalIncrease, keys.round)?;
        let set = keys.fill(set, |set, key| {
            set.insert(key);
            Ok(())
        })?;
        Ok(Counted::of(keys.all().map(|key| set.count(&key) >= 1)))
    }),
    ("Spectral, recurring minimum", "a key that was not removed is absent", |keys| {
        let set = Spectral::with_rate(keys.count, RATE, Method::RecurringMinimum, keys.round)?;
        let set = keys.fill(set, |set, key| {
            set.insert(key);
            Ok(())
        })?;
        keys.after_removals(set, |set, key| set.remove(key), |set, key| set.contains(key))
    }),
    ("DLeft", "a key that was not removed is absent, or counted below 1", |keys| {
        let set = DLeft::with_rate(keys.count, RATE, keys.round)?;
        let set = keys.fill(set, |set, key| set.insert(key))?;
        keys.after_removals(
            set,
            |set, key| set.remove(key),
            |set, key| set.contains(key) && set.count(key) != Some(0),
        )
    }),
    ("Cuckoo", "a key that was not removed is absent", |keys| {
        let set = Cuckoo::with_rate(keys.count, RATE, keys.round)?;
        let set = keys.fill(set, |set, key| set.insert(key))?;
        keys.after_removals(set, |set, key| set.remove(key), |set, key| set.contains(key))
    }),
    ("Scalable", "a key that was added is absent", |keys| {
        let set = keys.fill(Scalable::with_rate(RATE, keys.round)?, |set, key| set.insert(key).map(drop))?;
        let set = Keys::sent(&set)?;
        Ok(Counted::of(keys.all().map(|key| set.contains(&key))))
    }),
    ("Stable", "the last element is reported as new", |keys| {
        let mut set = Stable::with_memory(keys.count, RATE, keys.round)?;
        Ok(Counted::of(keys.all().map(|key| {
            set.insert(&key);
            set.contains(&key)
        })))
    }),
    ("Ring", "a key is not found within its least lifetime", |keys| {
        let mut set = Ring::with_rate(keys.count / 10 + 1, RATE, keys.count / 10 + 1, 5, keys.round)?;
        let least = set.least();
        Ok(Counted::of((0..keys.count).map(|now| {
            let is_inserted = set.insert(&keys.hashable(now), now).is_ok();
            let age = below(number(1, now), least.min(now) + 1);
            is_inserted && set.contains(&keys.hashable(now - age), now)
        })))
    }),
    ("Expiring", "a key is not found within its least lifetime", |keys| {
        let mut set = Expiring::with_rate(keys.count / 10 + 1, RATE, keys.count / 10 + 1, keys.round)?;
        let least = set.least();
        Ok(Counted::of((0..keys.count).map(|now| {
            let is_inserted = set.insert(&keys.hashable(now), now).is_ok();
            let age = below(number(1, now), least.min(now) + 1);
            is_inserted && set.contains(&keys.hashable(now - age), now)
        })))
    }),
    ("HashCompaction", "a visited state is reported as new", |keys| {
        let set = HashCompaction::for_states(keys.count, 0.001, keys.round)?;
        let mut set = Keys::sent(&keys.fill(set, |set, key| set.insert(key).map(drop))?)?;
        keys.all()
            .map(|key| Ok(set.contains(&key) && !set.insert(&key)?))
            .collect::<Result<Vec<_>>>()
            .map(|answers| Counted::of(answers.into_iter()))
    }),
    ("GolombSet", "a key of the set is absent", |keys| {
        let set = Keys::sent(&GolombSet::build(keys.all(), RATE, keys.round)?)?;
        Ok(Counted::of(keys.all().map(|key| set.contains(&key))))
    }),
    ("StaticMap", "a key of the map has another value than its own", |keys| {
        let value = |index| number(2, index) & 0xff;
        let pairs = (0..keys.count).map(|index| (keys.hashable(index), value(index)));
        let map = Keys::sent(&StaticMap::build(pairs, 8, 8, keys.round)?)?;
        Ok(Counted::of((0..keys.count).map(|index| map.get(&keys.hashable(index)) == Some(value(index)))))
    }),
    ("Approximator", "a bound is below the greatest value of its key", |keys| {
        let value = |index| number(3, index);
        let set = Approximator::<Max>::with_rate(keys.count, RATE, keys.round)?;
        (0..keys.count).for_each(|index| set.insert(&keys.hashable(index), value(index)));
        Ok(Counted::of((0..keys.count).map(|index| set.get(&keys.hashable(index)) >= value(index))))
    }),
    ("Digest", "a key of the store is absent", |keys| {
        let set = Keys::sent(&Digest::build(keys.all(), RATE, 0, keys.round)?)?;
        Ok(Counted::of(keys.all().map(|key| set.contains(&key))))
    }),
    ("certainly_missing", "a key is sent that the other side has", |keys| {
        let set = keys.fill(Bloom::with_rate(keys.count, RATE, keys.round)?, |set, key| {
            set.insert(key);
            Ok(())
        })?;
        let sent = certainly_missing(&set, keys.all()).count() as u64;
        Ok(Counted { probes: keys.count, forbidden: sent })
    }),
    ("Iblt", "an item is listed that is not in the difference, or a list lacks one", |keys| {
        lists(keys, |sets, seed| {
            let empty = Iblt::for_differences(sets.differences(), seed)?;
            let [mine, theirs] = sets.both().map(|items| {
                let mut table = empty.clone();
                items.for_each(|item| table.insert(item));
                table
            });
            Ok(Keys::sent(&mine)?.difference(&theirs)?.map(|found| (found.mine, found.theirs)))
        })
    }),
    ("Rateless", "an item is listed that is not in the difference, or a list lacks one", |keys| {
        lists(keys, |sets, seed| {
            let mut decoder = Decoder::new(seed);
            loop {
                let range = decoder.cells()..decoder.cells() + Rateless::cells_for(sets.differences());
                let mut tables = [Rateless::new(range.clone(), seed)?, Rateless::new(range, seed)?];
                for (table, items) in tables.iter_mut().zip(sets.both()) {
                    items.for_each(|item| table.insert(item));
                }
                decoder.extend(&Keys::sent(&tables[0])?, &tables[1])?;
                if let Some(found) = decoder.finish() {
                    return Ok(Some((found.mine, found.theirs)));
                }
            }
        })
    }),
    ("DifferenceSize", "equal sets differ, or an estimate is below the difference of the totals", |keys| {
        let (mut mine, mut theirs) =
            (DifferenceSize::with_shape(16, keys.round)?, DifferenceSize::with_shape(16, keys.round)?);
        let mut counted = Counted::default();
        for index in 0..keys.count {
            mine.insert(&keys.hashable(index));
            let surplus = index % 8;
            if surplus == 0 {
                theirs = mine.clone();
            }
            let estimate = mine.estimate(&theirs)?;
            let allowed = if surplus == 0 { estimate == 0.0 } else { estimate >= surplus as f64 };
            counted.probes += 1;
            counted.forbidden += u64::from(!allowed);
        }
        Ok(counted)
    }),
];

fn frozen(keys: &Keys) -> Result<Counted> {
    let mut set = Bloom::with_rate(keys.count, RATE, keys.round)?;
    keys.all().for_each(|key| _ = set.insert(&key));
    let owner = [3; 16];
    let block = set.freeze(owner, keys.count)?;
    let filter = sievedb::filter::Filter::open(
        sievedb::filter::AlignedBytes::copy_of(&block),
        sievedb::filter::Expect::table(owner, keys.round, keys.count),
    )?;
    Ok(Counted::of(keys.all().map(|key| filter.may_contain_key(&key))))
}

struct Sets<'a> {
    keys: &'a Keys,
    first: u64,
}

const LISTED: u64 = 1000;

impl Sets<'_> {
    fn item(&self, index: u64) -> u128 {
        let key = |index| number(100 + self.keys.round, index);
        u128::from(key(index)) << 64 | u128::from(key(1 << 38 | index))
    }

    fn differences(&self) -> u64 {
        LISTED
    }

    fn both(&self) -> [Box<dyn Iterator<Item = u128> + '_>; 2] {
        let third = LISTED / 2;
        [0, third].map(|start| {
            let range = self.first + start..self.first + start + 2 * third;
            Box::new(range.map(|index| self.item(index))) as Box<dyn Iterator<Item = u128>>
        })
    }
}

type Lists = Option<(Vec<u128>, Vec<u128>)>;

fn lists(keys: &Keys, list: impl Fn(&Sets<'_>, u64) -> Result<Lists>) -> Result<Counted> {
    let mut counted = Counted::default();
    for pair in 0..keys.count.div_ceil(LISTED) {
        let sets = Sets { keys, first: 2 * LISTED * pair };
        let [mine, theirs] = sets.both().map(Iterator::collect::<BTreeSet<_>>);
        counted.probes += LISTED;
        if let Some(found) = list(&sets, keys.round << 32 | pair)? {
            for (found, one, two) in [(found.0, &mine, &theirs), (found.1, &theirs, &mine)] {
                let right: BTreeSet<u128> = one.difference(two).copied().collect();
                let listed: BTreeSet<u128> = found.into_iter().collect();
                counted.forbidden += right.symmetric_difference(&listed).count() as u64;
            }
        }
    }
    Ok(counted)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::new("Sketches: forbidden answers", &super::command());
    report.text(&format!(
        "At least {} probes of each structure, which has {} keys of 8 bytes. Every round has another seed \
         and other keys, so each key is probed for once. Bloom, Scalable, HashCompaction, GolombSet, \
         StaticMap, Digest, Iblt and Rateless are encoded and decoded first. Structures with removal have \
         every other key removed. For tables that list differences, a probe is an item of the difference \
         of two sets of 1,000 items, of which 1,000 are not shared; a missing list is allowed.",
        count(args.queries),
        count(args.keys),
    ));
    let mut table = Table::new(["", "forbidden", "probes", "found", "seconds"]);
    let mut all = 0;
    for (name, law, round) in LAWS.iter().filter(|law| law.0.contains(&args.only)) {
        let (time, counted) = took(|| {
            let mut counted = Counted::default();
            let mut number = 0;
            while counted.probes < args.queries {
                let one = round(&Keys { round: number, count: args.keys })?;
                counted.probes += one.probes;
                counted.forbidden += one.forbidden;
                number += 1;
            }
            Ok::<_, Box<dyn std::error::Error>>(counted)
        });
        let counted = counted?;
        all += counted.forbidden;
        eprintln!(
            "{name}: {} of {} in {:.0} s",
            counted.forbidden,
            counted.probes,
            time.elapsed.as_secs_f64()
        );
        table.row([
            format!("**{name}**"),
            (*law).to_owned(),
            count(counted.probes),
            count(counted.forbidden),
            format!("{:.0}", time.elapsed.as_secs_f64()),
        ]);
    }
    report.table(&table);
    report.write(args.write.as_deref())?;
    if all == 0 { Ok(()) } else { Err(format!("{all} forbidden answers").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_structure_gives_a_forbidden_answer_and_each_is_probed() {
        for (name, _, round) in LAWS {
            for number in 0..3 {
                let counted = round(&Keys { round: number, count: 2000 }).unwrap();
                assert!(counted.probes >= 1000 && counted.forbidden == 0, "{name}: {counted:?}");
            }
        }
    }

    #[test]
    fn a_forbidden_answer_is_counted() {
        assert_eq!(Counted::of([true, false, true, false].into_iter()), Counted { probes: 4, forbidden: 2 });
        let keys = Keys { round: 1, count: LISTED };
        let wrong = lists(&keys, |sets, _| {
            let [mine, theirs] = sets.both().map(Iterator::collect::<BTreeSet<_>>);
            let only = |one: &BTreeSet<u128>, two: &BTreeSet<u128>| one.difference(two).copied().collect();
            let (mut first, mut second): (Vec<u128>, Vec<u128>) =
                (only(&mine, &theirs), only(&theirs, &mine));
            first.pop();
            second.extend(mine.intersection(&theirs).next());
            Ok(Some((first, second)))
        });
        assert_eq!(wrong.unwrap(), Counted { probes: LISTED, forbidden: 2 });
        assert_eq!(lists(&keys, |_, _| Ok(None)).unwrap(), Counted { probes: LISTED, forbidden: 0 });
    }
}
