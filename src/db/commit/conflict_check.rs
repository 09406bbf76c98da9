//! Decides conditional writes in the commit leader.
//!
//! The caller has noted the newest visible sequence number, then looked up its keys (`conditional_loop`). The leader
//! reads no blocks. It checks each key for newer entries in
//!
//! 1. earlier batches of the group ([`Overlay`]);
//! 2. memtables. If a memtable with newer entries was flushed and released, the caller must repeat its lookup.
//!
//! The newest entry decides; if there is none, the caller's answer holds. The caller must also repeat its lookup if a
//! horizon has risen, or if other entries of the batch depend on a changed answer.
//!
//! If a decision depends on an earlier batch of the group and the group fails, the caller gets the group's error.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{BatchReader, KeyspaceId, own_batch, select};
use crate::db::queues::bits::Bits;
use crate::db::queues::condition::{Admitted, AskedKey, Condition, Decision, KeyCondition, Rule};
use crate::db::queues::value::Value;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::hash::key_hash;
use crate::key::{EntryKind, SeqNo};
use crate::limits::SEQNO_MAX;
use crate::memtable::{Memtable, Newest, SpanStack};
use crate::spans::RangeDelete;

impl Admitted {
    /// `writes` marks the entries that the rule allows by the caller's lookup.
    pub(in crate::db) fn conditional(
        tree: &Arc<Tree>,
        all: Vec<u8>,
        read_at: Past,
        rule: Rule,
        keys: Vec<AskedKey>,
        writes: Bits,
    ) -> Result<Self> {
        let (bytes, all) = if writes.all() { (all, None) } else { (part_of(&all, &writes)?, Some(all)) };
        let decision = Decision::Open;
        let (is_whole, changed_to) = (false, None);
        let condition = KeyCondition { read_at, rule, keys, writes, all, decision, is_whole, changed_to };
        Ok(Self::asking(bytes, vec![Arc::clone(tree)], Condition::Keys(condition)))
    }

    pub(in crate::db) fn asking(bytes: Vec<u8>, trees: Vec<Arc<Tree>>, condition: Condition) -> Self {
        Self { bytes, trees, condition: Some((decide, Box::new(condition))), may_exceed: None }
    }
}

impl KeyCondition {
    pub(in crate::db) fn into_writes(self) -> Bits {
        self.writes
    }

    pub(in crate::db) fn changed_to(self) -> Option<Option<Value>> {
        self.changed_to
    }

    pub(in crate::db) fn into_all(self, bytes: Vec<u8>) -> (Vec<u8>, Vec<AskedKey>) {
        (self.all.unwrap_or(bytes), self.keys)
    }

    fn decide(
        &mut self,
        bytes: &mut Vec<u8>,
        tree: &Tree,
        visible: SeqNo,
        earlier: &[Admitted],
        overlay: &Overlay,
    ) -> Result<()> {
        let Past { seqno: read_at, horizon } = self.read_at;
        if tree.horizon() != horizon {
            self.decision = Decision::LookAgain;
            return Ok(());
        }
        let memtables = if visible == read_at { Some(Vec::new()) } else { tree.memtables_since(read_at) };
        let Some(memtables) = memtables else {
            self.decision = Decision::LookAgain;
            return Ok(());
        };
        let mut rests_on_group = false;
        if !memtables.is_empty() || !overlay.is_empty() {
            let since = Since { read_at, tree: tree.id, memtables, earlier, overlay };
            let all = self.all.as_deref().unwrap_or(bytes);
            let mut is_other = false;
            for (at, AskedKey { place, hash }) in self.keys.iter().enumerate() {
                let Some(hash) = *hash else { continue };
                let Some((latest, is_in_group)) = since.latest(hash, &all[place.clone()]) else { continue };
                rests_on_group |= is_in_group;
                let writes = self.rule.allows(latest.value());
                is_other |= self.writes.get(at) != writes;
                self.writes.set(at, writes);
                if at + 1 == self.keys.len() {
                    self.changed_to = Some(latest.into_value());
                }
            }
            if is_other && self.is_whole {
                self.decision = Decision::LookAgain;
                return Ok(());
            }
            if is_other {
                let selected = part_of(all, &self.writes)?;
                let before = std::mem::replace(bytes, selected);
                self.all.get_or_insert(before);
            }
        }
        let is_written = self.is_whole || self.writes.any();
        self.decision = if is_written { Decision::Write } else { Decision::Nothing { rests_on_group } };
        Ok(())
    }
}

fn part_of(all: &[u8], marked: &Bits) -> Result<Vec<u8>> {
    select(all, |at| marked.get(at)).map_err(own_batch)
}

pub(in crate::db) fn decide(group: &mut [Admitted], visible: SeqNo, hash_seed: u64) -> Result<()> {
    let mut overlay = Overlay::new(hash_seed);
    for at in 0..group.len() {
        let (earlier, rest) = group.split_at_mut(at);
        let Admitted { bytes, trees, condition: Some((_, condition)), .. } = &mut rest[0] else { continue };
        overlay.cover(earlier)?;
        match &mut **condition {
            Condition::Keys(keys) => keys.decide(bytes, &trees[0], visible, earlier, &overlay)?,
            Condition::Reads(reads) => reads.decide(visible, earlier, &overlay),
        }
    }
    Ok(())
}

enum Latest<'g> {
    Deleted,
    InBatch(&'g [u8]),
    InMemtable(Bytes),
}

impl Latest<'_> {
    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Deleted => None,
            Self::InBatch(value) => Some(value),
            Self::InMemtable(value) => Some(value),
        }
    }

    fn into_value(self) -> Option<Value> {
        match self {
            Self::Deleted => None,
            Self::InBatch(value) => Some(Value::new(Bytes::copy_from_slice(value))),
            Self::InMemtable(value) => Some(Value::new(value)),
        }
    }
}

struct Since<'g> {
    read_at: SeqNo,
    tree: KeyspaceId,
    memtables: Vec<Arc<Memtable>>,
    earlier: &'g [Admitted],
    overlay: &'g Overlay,
}

impl<'g> Since<'g> {
    fn latest(&self, hash: u64, key: &[u8]) -> Option<(Latest<'g>, bool)> {
        if let Some(found) = self.overlay.find(self.earlier, self.tree, hash, key) {
            let value = found.and_then(|place| Some(&self.earlier[place.batch].bytes[place.value.clone()?]));
            return Some((value.map_or(Latest::Deleted, Latest::InBatch), true));
        }
        let entries = self.memtables.iter().filter_map(|memtable| memtable.get(hash, key, SEQNO_MAX));
        let newest = entries.max_by_key(Newest::seqno).filter(|newest| newest.seqno() > self.read_at)?;
        let put = newest.put().map(|put| Latest::InMemtable(put.value()));
        Some((put.unwrap_or(Latest::Deleted), false))
    }
}

pub(in crate::db) struct Overlay {
    hash_seed: u64,
    covered: usize,
    places: HashMap<u64, Place, BuildHasherDefault<IsHash>>,
    range_deletes: Vec<(KeyspaceId, SpanStack)>,
    entries: u64,
}

struct Place {
    number: u64,
    batch: usize,
    keyspace: KeyspaceId,
    key: Range<usize>,
    value: Option<Range<usize>>,
}

impl Overlay {
    fn new(hash_seed: u64) -> Self {
        Self { hash_seed, covered: 0, places: HashMap::default(), range_deletes: Vec::new(), entries: 0 }
    }

    fn is_empty(&self) -> bool {
        self.places.is_empty() && self.range_deletes.is_empty()
    }

    fn cover(&mut self, decided: &[Admitted]) -> Result<()> {
        for batch in self.covered..decided.len() {
            let admitted = &decided[batch];
            if !admitted.is_written() {
                continue;
            }
            for entry in BatchReader::open(&admitted.bytes).map_err(own_batch)? {
                let entry = entry.map_err(own_batch)?;
                self.entries += 1;
                let (number, key) = (self.entries, &admitted.bytes[entry.key.clone()]);
                if entry.kind == EntryKind::RangeDelete {
                    let end = Some(&admitted.bytes[entry.value]).filter(|end| !end.is_empty());
                    self.range_deletes_of(entry.keyspace).insert(key, end, number);
                    continue;
                }
                let slot = self.slot(decided, entry.keyspace, key_hash(self.hash_seed, key), key);
                let value = (entry.kind == EntryKind::Put).then_some(entry.value);
                self.places
                    .insert(slot, Place { number, batch, keyspace: entry.keyspace, key: entry.key, value });
            }
        }
        self.covered = decided.len();
        Ok(())
    }

    fn range_deletes_of(&mut self, keyspace: KeyspaceId) -> &SpanStack {
        let at = self.range_deletes.iter().position(|(id, _)| *id == keyspace).unwrap_or_else(|| {
            self.range_deletes.push((keyspace, SpanStack::new()));
            self.range_deletes.len() - 1
        });
        &self.range_deletes[at].1
    }

    pub(in crate::db) fn range_deletes(&self) -> impl Iterator<Item = (KeyspaceId, RangeDelete)> {
        self.range_deletes.iter().flat_map(|(id, all)| all.above(0).into_iter().map(|one| (*id, one)))
    }

    pub(in crate::db) fn keys<'g>(
        &self,
        decided: &'g [Admitted],
    ) -> impl Iterator<Item = (KeyspaceId, &'g [u8])> {
        self.places.values().map(|place| (place.keyspace, &decided[place.batch].bytes[place.key.clone()]))
    }

    /// `Some(None)` is a range delete.
    fn find(
        &self,
        decided: &[Admitted],
        keyspace: KeyspaceId,
        hash: u64,
        key: &[u8],
    ) -> Option<Option<&Place>> {
        if self.is_empty() {
            return None;
        }
        let place = self.places.get(&self.slot(decided, keyspace, hash, key));
        let over = self.range_deletes.iter().find(|(id, _)| *id == keyspace);
        match over.and_then(|(_, all)| all.covering(key, SEQNO_MAX)) {
            Some(number) if place.is_none_or(|place| place.number < number) => Some(None),
            _ => place.map(Some),
        }
    }

    fn slot(&self, decided: &[Admitted], keyspace: KeyspaceId, hash: u64, key: &[u8]) -> u64 {
        let is_other = |place: &Place| {
            place.keyspace != keyspace || decided[place.batch].bytes[place.key.clone()] != *key
        };
        let mut slot = hash;
        while self.places.get(&slot).is_some_and(is_other) {
            slot = slot.wrapping_add(1);
        }
        slot
    }
}

#[derive(Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only numbers are hashed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::WriteBatch;
    use crate::db::Db;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    type Writes<'a> = &'a [(&'a str, Option<&'a str>)];

    fn encoded(tree: &Tree, writes: Writes<'_>) -> Vec<u8> {
        let mut batch = WriteBatch::new();
        for (key, value) in writes {
            match value {
                Some(value) => batch.push_put(tree.id, key.as_bytes(), value.as_bytes()),
                None => batch.push_delete(tree.id, key.as_bytes()),
            };
        }
        batch.into_parts().unwrap().0
    }

    fn plain(tree: &Arc<Tree>, writes: Writes<'_>) -> Admitted {
        Admitted {
            bytes: encoded(tree, writes),
            trees: vec![Arc::clone(tree)],
            condition: None,
            may_exceed: None,
        }
    }

    /// A conditional batch; by the caller's lookup, `rule` allows the `marked` entries.
    fn asks(db: &Db, tree: &Arc<Tree>, writes: Writes<'_>, rule: Rule, marked: &[bool]) -> Admitted {
        let engine = db.engine();
        let marked = marked.iter().copied().collect();
        let all = encoded(tree, writes);
        let seen = Past { seqno: engine.sequence.visible(), horizon: tree.horizon() };
        let places = BatchReader::open(&all).unwrap().map(|entry| entry.unwrap().key);
        let hash = |place: &Range<usize>| Some(key_hash(engine.keyspaces.hash_seed, &all[place.clone()]));
        let keys = places.map(|place| AskedKey { hash: hash(&place), place }).collect();
        Admitted::conditional(tree, all, seen, rule, keys, marked).unwrap()
    }

    fn run(db: &Db, group: &mut [Admitted]) {
        decide(group, db.engine().sequence.visible(), db.engine().keyspaces.hash_seed).unwrap();
    }

    fn decision(admitted: &Admitted) -> Decision {
        admitted.decision().unwrap()
    }

    fn of_keys(admitted: Admitted) -> KeyCondition {
        let Condition::Keys(condition) = *admitted.condition.unwrap().1 else { panic!("it is one of keys") };
        condition
    }

    const ALONE: Decision = Decision::Nothing { rests_on_group: false };

    fn open() -> (Db, Arc<Tree>) {
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        let tree = db.engine().keyspaces.default_tree();
        (db, tree)
    }

    #[test]
    fn the_batches_before_it_in_the_group_decide_deletes_and_other_keyspaces_included() {
        let (db, tree) = open();
        let other = Arc::clone(&db.keyspace("other", KeyspaceOptions::new()).unwrap().tree);
        let insert = |key| asks(&db, &tree, &[(key, Some("new"))], Rule::Absent, &[true]);
        let mut group = [
            insert("a"),
            plain(&other, &[("b", Some("elsewhere"))]),
            insert("a"),
            insert("b"),
            plain(&tree, &[("a", Some("1")), ("c", Some("1")), ("a", None), ("c", None), ("c", Some("2"))]),
            insert("a"),
            insert("c"),
            asks(&db, &tree, &[("c", None)], Rule::Equals("1".into()), &[true]),
            asks(&db, &tree, &[("c", None)], Rule::Equals("2".into()), &[true]),
            asks(&db, &tree, &[("c", None)], Rule::Present, &[true]),
        ];
        run(&db, &mut group);
        use Decision::Write;
        // These refusals depend on batches of the group.
        let no = Decision::Nothing { rests_on_group: true };
        let wanted = [Write, no, Write, Write, no, no, Write, no];
        let mut asked: Vec<Admitted> = group.into_iter().filter(|one| one.condition.is_some()).collect();
        assert_eq!(asked.iter().map(decision).collect::<Vec<_>>(), wanted);
        assert!(!asked.iter().any(Admitted::stands_alone));
        let changed_to = of_keys(asked.remove(5)).changed_to();
        assert_eq!(changed_to.unwrap().as_deref(), Some(&b"2"[..]));
    }

    #[test]
    fn of_a_batch_those_entries_are_written_whose_keys_are_absent_now() {
        let (db, tree) = open();
        db.put("deleted since", "").unwrap();
        let keys = ["new", "written since", "deleted since", "in the group", "old"];
        let writes = keys.map(|key| (key, Some("v")));
        let batch = asks(&db, &tree, &writes, Rule::Absent, &[true, true, false, true, false]);
        assert_eq!(batch.bytes, encoded(&tree, &[writes[0], writes[1], writes[3]]));
        db.put("written since", "").unwrap();
        db.delete("deleted since").unwrap();
        let mut group = [plain(&tree, &[("in the group", Some(""))]), batch];
        run(&db, &mut group);
        let [_, batch] = group;
        assert_eq!(batch.bytes, encoded(&tree, &[writes[0], writes[2]]));
        let condition = of_keys(batch);
        assert_eq!(condition.decision, Decision::Write);
        assert_eq!(condition.writes, Bits::from_iter([true, false, true, false, false]));
        assert_eq!(condition.into_all(Vec::new()).0, encoded(&tree, &writes));
    }

    #[test]
    fn a_batch_with_entries_that_follow_from_the_answers_is_written_whole_or_goes_back_to_its_caller() {
        let (db, tree) = open();
        let other = Arc::clone(&db.keyspace("other", KeyspaceOptions::new()).unwrap().tree);
        db.put("seen", "").unwrap();
        let more = encoded(&other, &[("count", Some("1"))]);
        let follows = |is_new| {
            let writes = [("new", Some("v")), ("seen", Some("v"))];
            let asked = asks(&db, &tree, &writes, Rule::Absent, &[is_new, false]);
            asked.followed_by(&more, &[Arc::clone(&other), Arc::clone(&tree)]).unwrap()
        };
        use Decision::{LookAgain, Write};
        let decided = |before: Writes<'_>, is_new| {
            let mut group = [plain(&tree, before), follows(is_new)];
            run(&db, &mut group);
            let [_, asked] = group;
            (decision(&asked), asked)
        };
        let (unchanged, asked) = decided(&[("else", Some(""))], true);
        let mut whole = WriteBatch::new();
        whole.push_put(tree.id, b"new", b"v").push_put(other.id, b"count", b"1");
        assert_eq!((unchanged, asked.trees.len()), (Write, 2));
        assert_eq!(asked.bytes, whole.into_parts().unwrap().0);
        // The value has changed, and changed back.
        assert_eq!(decided(&[("new", Some("")), ("new", None)], true).0, Write);
        for before in [("new", Some("")), ("seen", None)] {
            let (changed, asked) = decided(&[before], true);
            assert!(changed == LookAgain && asked.stands_alone(), "{before:?}");
        }
        // Without changes the dependent entries are written.
        db.put("new", "").unwrap();
        let (unchanged, asked) = decided(&[("seen", Some("2"))], false);
        assert_eq!((unchanged, asked.bytes), (Write, more.clone()));
        assert_eq!(decided(&[("seen", None)], false).0, LookAgain);
    }

    #[test]
    fn what_was_written_since_is_found_in_every_memtable_and_flushed_ones_are_missed() {
        let (db, tree) = open();
        db.put("before", "").unwrap();
        let insert = |key| asks(&db, &tree, &[(key, Some("new"))], Rule::Absent, &[true]);
        let keys = ["immutable", "active", "never"];
        let [mut first, mut second, mut kept] = [(), (), ()].map(|()| keys.map(insert));
        db.put("immutable", "1").unwrap();
        db.engine().seal(vec![Arc::clone(&tree)]).unwrap();
        db.put("active", "1").unwrap();
        use Decision::{LookAgain, Write};
        run(&db, &mut first);
        assert_eq!(first.each_ref().map(decision), [ALONE, ALONE, Write]);
        assert!(first[0].stands_alone(), "what it rests on is visible");
        let keeper = tree.keep_memtables(0);
        db.flush().unwrap();
        run(&db, &mut kept);
        assert_eq!(kept.each_ref().map(decision), [ALONE, ALONE, Write], "they were kept");
        drop(keeper);
        run(&db, &mut second);
        assert_eq!(second.each_ref().map(decision), [LookAgain; 3]);
        let mut later = [insert("never")];
        db.put("later", "").unwrap();
        run(&db, &mut later);
        assert_eq!(decision(&later[0]), Write, "nothing above its number has been flushed");
    }

    #[test]
    fn memtables_have_room_for_a_batch_that_has_grown_since_its_caller_looked() {
        let options =
            Options::new().fs(Arc::new(MemFs::new())).background_threads(0).memory_budget(128 << 20);
        let db = options.open("/db").unwrap();
        let (tree, memory) = (db.engine().keyspaces.default_tree(), &db.engine().context.memory);
        let keys: Vec<String> = (0..100).map(|n| format!("key {n}")).collect();
        let value = "v".repeat(140 << 10);
        keys.iter().for_each(|key| db.put(key, "").unwrap());
        let writes: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(&*value))).collect();
        let mut marked = [false; 100];
        marked[0] = true;
        let asked = asks(&db, &tree, &writes, Rule::Absent, &marked);
        // All keys are deleted after the lookup, and most memory is taken.
        keys.iter().for_each(|key| db.delete(key).unwrap());
        for n in (0_u32..200).take_while(|_| memory.memtables() < 20 << 20) {
            db.put(n.to_be_bytes(), &value).unwrap();
        }
        let free = memory.memtables_max() - memory.memtables();
        assert!(asked.bytes.len() < free / 2 && free < keys.len() * value.len(), "{free} bytes are free");
        // Room is made before the decision, so the memtables with the deletes are flushed.
        let _kept = tree.keep_memtables(0);
        db.engine().submit_batch(asked).unwrap();
        assert_eq!(db.get("key 99").unwrap().unwrap(), value);
        let (taken, most) = (memory.memtables(), memory.memtables_max());
        assert!(taken <= most, "{taken} bytes of {most}");
    }

    #[test]
    fn only_batches_that_were_written_are_counted() {
        let (db, tree) = open();
        db.put("k", "").unwrap();
        let insert = || asks(&db, &tree, &[("l", Some(""))], Rule::Absent, &[true]);
        let (first, second) = (insert(), insert());
        db.engine().submit_batch(first).unwrap();
        db.engine().submit_batch(second).unwrap();
        db.write(WriteBatch::new()).unwrap();
        assert_eq!((db.stats().batches, db.stats().entries), (2, 2));
    }

    fn ranged(tree: &Arc<Tree>, range: (&str, &str), put: &[(&str, &str)]) -> Admitted {
        let mut batch = WriteBatch::new();
        batch.push_range_delete(tree.id, range.0.as_bytes(), range.1.as_bytes());
        for (key, value) in put {
            batch.push_put(tree.id, key.as_bytes(), value.as_bytes());
        }
        let bytes = batch.into_parts().unwrap().0;
        Admitted { bytes, trees: vec![Arc::clone(tree)], condition: None, may_exceed: None }
    }

    #[test]
    fn range_deletes_before_it_in_the_group_delete_the_keys_that_no_later_entry_writes() {
        let (db, tree) = open();
        let other = Arc::clone(&db.keyspace("other", KeyspaceOptions::new()).unwrap().tree);
        ["b", "c", "x"].into_iter().for_each(|key| db.put(key, "old").unwrap());
        let insert = |key, is_absent| asks(&db, &tree, &[(key, Some("new"))], Rule::Absent, &[is_absent]);
        let mut group = [
            ranged(&other, ("a", ""), &[]),
            insert("b", false),
            plain(&tree, &[("d", Some("1"))]),
            ranged(&tree, ("b", "e"), &[("c", "1")]),
            insert("b", false),
            insert("c", true),
            insert("d", true),
            insert("x", false),
            ranged(&tree, ("d", ""), &[]),
            insert("x", false),
        ];
        run(&db, &mut group);
        let refused = |rests_on_group| Decision::Nothing { rests_on_group };
        let decisions: Vec<_> = [1, 4, 5, 6, 7, 9].map(|at| decision(&group[at])).into();
        let write = Decision::Write;
        assert_eq!(decisions, [refused(false), write, refused(true), write, refused(false), write]);
    }

    #[test]
    fn a_range_delete_since_the_lookup_decides_also_if_it_is_flushed_and_kept() {
        let (db, tree) = open();
        ["b", "c"].into_iter().for_each(|key| db.put(key, "old").unwrap());
        let expects = |key| asks(&db, &tree, &[(key, Some("new"))], Rule::Equals(b"old".into()), &[true]);
        let _kept = tree.keep_memtables(db.engine().sequence.visible());
        let mut group = [expects("b"), expects("c"), expects("b"), expects("c")];
        db.delete_range("a".."c").unwrap();
        run(&db, &mut group[..2]);
        db.flush().unwrap();
        run(&db, &mut group[2..]);
        let refused = Decision::Nothing { rests_on_group: false };
        let decisions: Vec<_> = group.iter().map(decision).collect();
        assert_eq!(decisions, [refused, Decision::Write, refused, Decision::Write]);
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let (_, tree) = open();
        let group = [plain(&tree, &[("a", Some("1")), ("b", None)])];
        let entries: Vec<_> = BatchReader::open(&group[0].bytes).unwrap().map(Result::unwrap).collect();
        let mut overlay = Overlay::new(0);
        for (at, (entry, key)) in entries.into_iter().zip([b"a", b"b"]).enumerate() {
            let slot = overlay.slot(&group, 0, u64::MAX, key);
            assert_eq!(slot, u64::MAX.wrapping_add(at as u64));
            overlay.places.insert(
                slot,
                Place { number: 1, batch: 0, keyspace: 0, key: entry.key, value: Some(entry.value) },
            );
        }
        let found = |keyspace, key| overlay.find(&group, keyspace, u64::MAX, key).is_some();
        assert!(found(0, b"a") && found(0, b"b") && !found(0, b"c") && !found(1, b"a"));
    }
}
