//! Scans of tables against a model: steps within a block, and from block to block, have to find the same.

use std::ops::Bound;

use super::*;
use crate::merge::MergeIter;
use crate::snapshot_read::{KeyRange, Range, Visible};

const NEWEST: SeqNo = 3000;

struct Tables {
    tables: Vec<Arc<Table>>,
    all: Model,
    _fixtures: Vec<Fixture>,
}

impl Tables {
    fn random(dice: &mut Dice) -> Self {
        let mut tables = Self { tables: Vec::new(), all: Model::new(), _fixtures: Vec::new() };
        let count = 1 + dice.below(3);
        for age in 0..count {
            let mut model = Model::new();
            for _ in 0..20 << (2 * age) {
                let user = format!("{:04}", dice.below(1500)).into_bytes();
                let versions = if dice.below(20) == 0 { 1 + dice.below(12) } else { 1 };
                for _ in 0..versions {
                    let oldest = NEWEST / count * (count - 1 - age);
                    let seqno =
                        if age + 1 == count && dice.below(2) == 0 { 0 } else { oldest + dice.below(900) };
                    let len = dice.below(40) as usize;
                    insert(&mut model, user.clone(), seqno, (dice.below(8) > 0).then(|| dice.bytes(len)));
                }
            }
            // If a put and a delete have one number, the first.
            let mut last = None;
            model.retain(|(user, tag), _| {
                let place = Some((user.clone(), tag.0.seqno()));
                std::mem::replace(&mut last, place.clone()) != place
            });
            let fixture = Fixture::new(1 << 20);
            let meta = fixture.write(&model, 300, Compression::None);
            tables.tables.push(fixture.open(&meta).unwrap());
            tables._fixtures.push(fixture);
            tables.all.extend(model);
        }
        tables
    }

    fn visible(&self, seqno: SeqNo, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Vec<(Vec<u8>, Bytes)> {
        let mut newest = BTreeMap::new();
        for ((user, tag), value) in &self.all {
            if tag.0.seqno() <= seqno && std::ops::RangeBounds::<&[u8]>::contains(&range, &&user[..]) {
                newest.entry(user.clone()).or_insert((tag.0.kind(), value.clone()));
            }
        }
        let puts = newest.into_iter().filter(|(_, (kind, _))| *kind == EntryKind::Put);
        puts.map(|(user, (_, value))| (user, value)).collect()
    }
}

#[test]
fn scans_of_tables_agree_with_the_model_from_both_ends_at_every_snapshot() {
    let mut dice = Dice(17);
    for round in 0..40 {
        let tables = Arc::new(Tables::random(&mut dice));
        for _ in 0..12 {
            let seqno = if dice.below(3) == 0 { NEWEST } else { dice.below(NEWEST) };
            let keys = [0, 1].map(|_| format!("{:04}", dice.below(1500)).into_bytes());
            let mut bound = |key| match dice.below(4) {
                0 => Bound::Included(key),
                1 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let range = (bound(&keys[0][..]), bound(&keys[1][..]));
            let sources = Arc::clone(&tables);
            let source = move || {
                Ok(MergeIter::new(sources.tables.iter().map(|table| table.iter(true)).collect::<Vec<_>>()))
            };
            let mut scan = Range::new(Box::new(source), seqno, KeyRange::new(&range));
            let down_of_16 = [0, 0, 16, 16, 1, 8, 15][dice.below(7) as usize];
            let (mut up, mut down) = (Vec::new(), Vec::new());
            loop {
                let is_down = dice.below(16) < down_of_16;
                let found = if is_down { scan.next_back() } else { scan.next() };
                let Some((user, value)) = found.unwrap().map(Visible::into_entry) else { break };
                if is_down { &mut down } else { &mut up }.push((user.to_vec(), value.read().unwrap()));
            }
            up.extend(down.into_iter().rev());
            assert_eq!(up, tables.visible(seqno, range), "round {round} at {seqno} in {range:?}");
        }
    }
}
