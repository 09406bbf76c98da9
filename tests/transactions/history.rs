//! Searches for a serial order in which each transaction reads the values that it read. Each version of a key has the
//! number of its writer; 0 is the initial version. A transaction precedes another if it wrote the version that the
//! other read or replaced, or if it read the version that the other replaced. The history is serializable if this
//! relation has no cycle. Absent keys of a read range count as read, which reveals phantoms.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Id = u64;

pub(crate) type Key = u16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) id: Id,
    pub(crate) read_at: u64,
    pub(crate) reads: Vec<(Key, Id)>,
}

/// The versions in order, each with the first and the last snapshot that saw it.
type Versions = Vec<(Id, u64, u64)>;

fn versions(runs: &[Run]) -> Result<BTreeMap<Key, Versions>, String> {
    let known: BTreeSet<Id> = runs.iter().map(|run| run.id).chain([0]).collect();
    let mut seen: BTreeMap<Key, BTreeMap<Id, (u64, u64)>> = BTreeMap::new();
    for run in runs {
        for &(key, version) in &run.reads {
            if !known.contains(&version) {
                return Err(format!("{} read version {version} of key {key}, never committed", run.id));
            }
            let span = seen.entry(key).or_default().entry(version).or_insert((run.read_at, run.read_at));
            *span = (span.0.min(run.read_at), span.1.max(run.read_at));
        }
    }
    let mut ordered = BTreeMap::new();
    for (key, seen) in seen {
        let mut all: Versions = seen.into_iter().map(|(id, (first, last))| (id, first, last)).collect();
        all.sort_by_key(|&(_, first, _)| first);
        if let Some(pair) = all.windows(2).find(|pair| pair[0].2 >= pair[1].1) {
            return Err(format!("versions of key {key} were seen in turns: {pair:?}"));
        }
        ordered.insert(key, all);
    }
    Ok(ordered)
}

pub(crate) fn check(runs: &[Run]) -> Result<usize, String> {
    let versions = versions(runs)?;
    let mut after: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut add = |before: Id, then: Id| {
        if before != then && before != 0 && then != 0 {
            after.entry(before).or_default().insert(then);
        }
    };
    for versions in versions.values() {
        versions.windows(2).for_each(|pair| add(pair[0].0, pair[1].0));
    }
    for run in runs {
        for (key, version) in &run.reads {
            add(*version, run.id);
            let next = versions[key].iter().skip_while(|(id, ..)| id != version).nth(1);
            if let Some((next, ..)) = next {
                add(run.id, *next);
            }
        }
    }
    let edges = after.values().map(BTreeSet::len).sum();
    match cycle(&after) {
        None => Ok(edges),
        Some(cycle) => Err(format!("a cycle of {}: {:?}", cycle.len(), &cycle[..cycle.len().min(12)])),
    }
}

fn cycle(after: &BTreeMap<Id, BTreeSet<Id>>) -> Option<Vec<Id>> {
    let mut left: BTreeMap<Id, usize> = BTreeMap::new();
    for (&id, then) in after {
        left.entry(id).or_default();
        then.iter().for_each(|&then| *left.entry(then).or_default() += 1);
    }
    let mut free: Vec<Id> = left.iter().filter(|(_, before)| **before == 0).map(|(&id, _)| id).collect();
    while let Some(id) = free.pop() {
        left.remove(&id);
        for then in after.get(&id).into_iter().flatten() {
            let before = left.get_mut(then)?;
            *before -= 1;
            if *before == 0 {
                free.push(*then);
            }
        }
    }
    // Each remaining transaction has a predecessor, so the search backward ends in a cycle.
    let before =
        |id: Id| left.keys().copied().find(|other| after.get(other).is_some_and(|then| then.contains(&id)));
    let mut path = vec![*left.keys().next()?];
    loop {
        let next = before(*path.last()?)?;
        if let Some(at) = path.iter().position(|&id| id == next) {
            path.drain(..at);
            path.reverse();
            return Some(path);
        }
        path.push(next);
    }
}

#[test]
fn the_checker_finds_lost_updates_write_skew_phantoms_and_reads_of_two_moments() {
    let run = |id, read_at, reads: &[(Key, Id)]| Run { id, read_at, reads: reads.to_vec() };
    // 1 writes both keys, 2 the first, 3 the second, 4 sees their result.
    let (seed, last) = (run(1, 0, &[(0, 0), (1, 0)]), run(4, 30, &[(0, 2), (1, 3)]));
    let history = |two: &[(Key, Id)], three: &[(Key, Id)]| {
        check(&[seed.clone(), run(2, 10, two), run(3, 10, three), last.clone()])
    };
    assert!(history(&[(0, 1)], &[(1, 1)]).is_ok());
    assert!(history(&[(0, 1), (1, 1)], &[(1, 1)]).is_ok(), "2 before 3");
    let skew = history(&[(1, 1)], &[(0, 1)]).unwrap_err();
    assert!(skew.starts_with("a cycle of 2"), "{skew}");
    let phantom = check(&[run(2, 10, &[(1, 0)]), run(3, 10, &[(0, 0)]), last.clone()]).unwrap_err();
    assert!(phantom.starts_with("a cycle of 2"), "{phantom}");
    let lost = check(&[
        seed.clone(),
        run(2, 10, &[(0, 1)]),
        run(3, 10, &[(0, 1)]),
        run(5, 15, &[(0, 2)]),
        run(4, 30, &[(0, 3)]),
    ]);
    assert!(lost.unwrap_err().starts_with("a cycle of 2"));
    let torn = check(&[
        seed.clone(),
        run(2, 10, &[(0, 1), (1, 1)]),
        run(5, 20, &[(0, 2), (1, 1)]),
        run(6, 30, &[(0, 2), (1, 2)]),
    ]);
    assert!(torn.unwrap_err().starts_with("a cycle of 2"), "2 wrote both, and 5 saw one of them");
    let gone = check(&[run(2, 10, &[(0, 9)])]).unwrap_err();
    assert!(gone.contains("never committed"), "{gone}");
    let turns =
        check(&[seed, run(2, 10, &[(0, 1)]), run(3, 20, &[(0, 2)]), run(4, 30, &[(0, 1)])]).unwrap_err();
    assert!(turns.contains("in turns"), "{turns}");
}
