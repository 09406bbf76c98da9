//! Scans of tables against a model, within a block and across blocks.

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
            // If a put and a delete have the same number, the first one wins.
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

#[test]
fn a_scan_reads_the_index_only_when_it_leaves_the_block_of_its_seek() {
    let fixture = Fixture::new(1 << 20);
    let mut model = Model::new();
    for key in 0..10_000u64 {
        // Blocks also end between versions of a key.
        (0..1 + key % 3).for_each(|seqno| insert(&mut model, format!("{key:05}"), seqno, Some(vec![7; 40])));
    }
    let table = fixture.open(&fixture.write(&model, 300, Compression::None)).unwrap();
    assert!(table.footer.index_depth > 1);
    let io = &fixture.ctx.io;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let index_blocks = || [&io.index_block_reads, &io.index_block_cache_hits].map(count).iter().sum::<u64>();
    let mut dice = Dice(3);
    let mut in_block = 0;
    for round in 0..2000 {
        let key = format!("{:05}", if round < 1000 { 10 * round } else { dice.below(10_000) });
        let target = (key.into_bytes(), std::cmp::Reverse(Tag::newest_at(dice.below(4))));
        let (mut iter, before) = (table.iter(true), index_blocks());
        iter.seek(internal(&target)).unwrap();
        let mut at = model.range(&target..);
        assert_eq!(current(&iter).unwrap(), expected(at.next()));
        // In earlier rounds, the separators of some index blocks were not in memory yet.
        in_block += u64::from(round >= 1000 && index_blocks() == before);
        let is_up = dice.below(2) == 0;
        let mut down = model.range(..&target);
        if is_up {
            (0..20).for_each(|_| {
                iter.next().unwrap();
                assert_eq!(current(&iter).unwrap(), expected(at.next()));
            });
        } else if iter.key().is_some() {
            (0..20).for_each(|_| {
                iter.prev().unwrap();
                assert_eq!(current(&iter).unwrap(), expected(down.next_back()));
            });
        }
    }
    // Other seeks read the index to enter the next block.
    assert!(in_block > 300, "{in_block}");
}
