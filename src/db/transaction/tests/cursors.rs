//! The read set of a transaction's cursor.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use crate::db::transaction::tests::*;
use crate::merge::vec_iter::Random;

#[derive(Clone)]
enum Place {
    New,
    Before,
    At(Vec<u8>),
    After,
}

fn one_of<'k>(keys: &'k [Vec<u8>], random: &mut Random) -> &'k [u8] {
    &keys[random.below(keys.len() as u64) as usize]
}

fn bound<'k>(keys: &'k [Vec<u8>], random: &mut Random) -> Bound<&'k [u8]> {
    match random.below(4) {
        0 => Bound::Included(one_of(keys, random)),
        1 => Bound::Excluded(one_of(keys, random)),
        _ => Bound::Unbounded,
    }
}

#[test]
fn a_cursor_reads_the_keys_that_its_movements_pass_and_no_others() {
    let letters = || b'a'..=b'f';
    let pairs = letters().flat_map(|first| letters().map(move |second| vec![first, second]));
    let keys: Vec<Vec<u8>> = letters().map(|letter| vec![letter]).chain(pairs).collect();
    let (random, mut conflicts) = (&mut Random(11), 0);
    for round in 0..400 {
        let db = open();
        keys.iter().filter(|_| random.below(6) == 0).for_each(|key| db.put(key, "").unwrap());
        let tx = db.transaction();
        tx.put("own", "");
        for key in &keys {
            match random.below(12) {
                0 => drop(tx.put(key, "")),
                1 => drop(tx.delete(key)),
                _ => {}
            }
        }
        let bounds = (bound(&keys, random), bound(&keys, random));
        let (mut cursor, mut place, mut read) = (tx.cursor(bounds), Place::New, BTreeSet::new());
        for _ in 0..random.below(7) {
            let (key, movement, before) = (one_of(&keys, random), random.below(8), place.clone());
            let is_upward = movement.is_multiple_of(2);
            let is_there = match movement {
                0 => cursor.seek_first(),
                1 => cursor.seek_last(),
                2 => cursor.seek(key),
                3 => cursor.seek_for_prev(key),
                4 | 6 => cursor.next(),
                _ => cursor.prev(),
            };
            place = match cursor.key() {
                Some(key) => Place::At(key.to_vec()),
                None if is_upward => Place::After,
                None => Place::Before,
            };
            assert_eq!(is_there.unwrap(), matches!(place, Place::At(_)));
            let is_behind_begin = |other: &[u8]| match (movement, &before) {
                (2, _) => other >= key,
                (3, _) => other <= key,
                (4 | 6, Place::At(from)) => other > &from[..],
                (5 | 7, Place::At(from)) => other < &from[..],
                (4 | 6, Place::After) | (5 | 7, Place::Before) => false,
                _ => true,
            };
            let is_before_end = |other: &[u8]| match &place {
                Place::At(to) if is_upward => other <= &to[..],
                Place::At(to) => other >= &to[..],
                _ => true,
            };
            read.extend(keys.iter().filter(|key| {
                RangeBounds::<&[u8]>::contains(&bounds, &&key[..])
                    && is_behind_begin(key)
                    && is_before_end(key)
            }));
        }
        drop(cursor);
        for key in &keys {
            let is_noted = lock(tx.read_set()).part(0).is_some_and(|part| part.contains(key));
            assert_eq!(is_noted, read.contains(key), "round {round}: {key:?} of {bounds:?}");
        }
        let changed = keys[random.below(keys.len() as u64) as usize].clone();
        db.put(&changed, "changed").unwrap();
        let is_refused = matches!(tx.commit(), Err(Error::Conflict { .. }));
        assert_eq!(is_refused, read.contains(&changed), "round {round}: {changed:?}");
        conflicts += u32::from(is_refused);
    }
    assert!((50..350).contains(&conflicts), "{conflicts}");
}

#[test]
fn entries_that_own_deletes_hide_are_not_counted_as_skipped_in_the_store() {
    let db = open();
    (0..100).for_each(|n| db.put(format!("{n:02}"), "v").unwrap());
    let tx = db.transaction();
    for n in 1..100 {
        tx.delete(format!("{n:02}"));
    }
    let skipped = || db.stats().keyspaces[0].skipped_entries;
    let mut cursor = tx.cursor(..);
    assert!(cursor.seek_last().unwrap() && cursor.key() == Some(b"00"));
    assert!(!cursor.prev().unwrap() && cursor.seek_first().unwrap() && !cursor.next().unwrap());
    assert_eq!((tx.iter().count(), tx.iter().rev().count(), skipped()), (1, 1, 0));
    drop(cursor);
    tx.commit().unwrap();
    assert!(db.cursor(..).seek_last().unwrap());
    assert_eq!(skipped(), 198);
    assert!(db.cursor(.."00").seek_last().is_ok_and(|found| !found) && db.iter().rev().count() == 1);
    assert_eq!(skipped(), 198 + 32);
}
