//! A cursor over the tables of one run. It opens one table at a time, on arrival.
//!
//! The tables of a run do not overlap, so a binary search over their bounds finds the only table that can have a key.
//! If the seek finds no entry there, or a step leaves the table, the cursor continues in the next table of that
//! direction, even beyond the reader's bounds. A reader of a key range should pass only the tables in that range.

use crate::block::BlockIter;
use crate::error::{Error, Result, Step};
use crate::iter::{EntryValue, Failure, InternalIterator, LentValue};
use crate::key::InternalKey;

pub(crate) trait RunSource: Send {
    type Iter: InternalIterator;

    fn len(&self) -> usize;

    fn bounds(&self, table: usize) -> (&[u8], &[u8]);

    fn open(&self, table: usize) -> Result<Self::Iter>;
}

pub(crate) struct RunIter<S: RunSource> {
    source: S,
    open: Option<(usize, S::Iter)>,
    failure: Failure,
}

impl<S: RunSource> RunIter<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, open: None, failure: Failure::default() }
    }

    #[inline(always)]
    fn attempt(&mut self, movement: impl FnOnce(&mut Self) -> Step) -> Step {
        self.failure.repeat()?;
        match movement(self) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    #[cold]
    fn fail(&mut self, error: Box<Error>) -> Step {
        self.open = None;
        self.failure.keep(error)
    }

    fn table(&mut self, table: usize) -> Result<&mut S::Iter> {
        let open = match self.open.take() {
            Some(open) if open.0 == table => open,
            _ => (table, self.source.open(table)?),
        };
        Ok(&mut self.open.insert(open).1)
    }

    /// A table's keys may differ from its bounds, so the seek is repeated in each later table.
    fn settle_forward(&mut self, seek: impl Fn(&mut S::Iter) -> Step) -> Step {
        while let Some((table, iter)) = &self.open
            && iter.key().is_none()
        {
            let next = table + 1;
            if next >= self.source.len() {
                break;
            }
            seek(self.table(next)?)?;
        }
        Ok(())
    }

    fn settle_backward(&mut self, seek: impl Fn(&mut S::Iter) -> Step) -> Step {
        while let Some((table, iter)) = &self.open
            && iter.key().is_none()
        {
            let Some(previous) = table.checked_sub(1) else { break };
            seek(self.table(previous)?)?;
        }
        Ok(())
    }

    fn partition(&self, before: impl Fn(&[u8], &[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.source.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let (smallest, largest) = self.source.bounds(middle);
            if before(smallest, largest) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

impl<S: RunSource> InternalIterator for RunIter<S> {
    fn seek_first(&mut self) -> Step {
        self.attempt(|run| {
            if run.source.len() == 0 {
                return Ok(());
            }
            run.table(0)?.seek_first()?;
            run.settle_forward(S::Iter::seek_first)
        })
    }

    fn seek_last(&mut self) -> Step {
        self.attempt(|run| {
            let Some(last) = run.source.len().checked_sub(1) else { return Ok(()) };
            run.table(last)?.seek_last()?;
            run.settle_backward(S::Iter::seek_last)
        })
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.attempt(|run| {
            let table = run.partition(|_, largest| largest < target.user);
            if table == run.source.len() {
                run.open = None;
                return Ok(());
            }
            run.table(table)?.seek(target)?;
            run.settle_forward(|iter| iter.seek(target))
        })
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.attempt(|run| {
            let Some(table) = run.partition(|smallest, _| smallest <= target.user).checked_sub(1) else {
                run.open = None;
                return Ok(());
            };
            run.table(table)?.seek_before(target)?;
            run.settle_backward(|iter| iter.seek_before(target))
        })
    }

    #[inline(always)]
    fn next(&mut self) -> Step {
        self.attempt(|run| {
            let Some((_, iter)) = &mut run.open else { return Ok(()) };
            iter.next()?;
            if iter.key().is_some() { Ok(()) } else { run.settle_forward(S::Iter::seek_first) }
        })
    }

    #[inline(always)]
    fn prev(&mut self) -> Step {
        self.attempt(|run| {
            let Some((_, iter)) = &mut run.open else { return Ok(()) };
            iter.prev()?;
            if iter.key().is_some() { Ok(()) } else { run.settle_backward(S::Iter::seek_last) }
        })
    }

    #[inline(always)]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.open.as_ref()?.1.key()
    }

    #[inline(always)]
    fn value(&self) -> EntryValue {
        let (_, iter) = self.open.as_ref().expect("the iterator stands on an entry");
        iter.value()
    }

    #[inline(always)]
    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        self.open.as_mut()?.1.lent()
    }

    #[inline(always)]
    fn block(&self) -> Option<&BlockIter> {
        self.open.as_ref()?.1.block()
    }

    #[inline(always)]
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        self.open.as_mut()?.1.leading_block(limit)
    }

    fn out_of_order(&self) -> Box<Error> {
        let (_, iter) = self.open.as_ref().expect("the iterator stands on an entry");
        iter.out_of_order()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::vec_iter::{Entry, Random, VecIter, here};
    use super::*;
    use crate::key::Tag;

    /// Tables in memory that count openings; opening the table `broken` fails.
    struct Tables {
        tables: Vec<Vec<Entry>>,
        broken: Option<usize>,
        opened: Arc<AtomicUsize>,
    }

    impl Tables {
        fn new(tables: Vec<Vec<Entry>>) -> Self {
            Self { tables, broken: None, opened: Arc::default() }
        }
    }

    impl RunSource for Tables {
        type Iter = VecIter;

        fn len(&self) -> usize {
            self.tables.len()
        }

        fn bounds(&self, table: usize) -> (&[u8], &[u8]) {
            let entries = &self.tables[table];
            (&entries[0].0, &entries[entries.len() - 1].0)
        }

        fn open(&self, table: usize) -> Result<VecIter> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            if self.broken == Some(table) {
                return Err(Error::invalid("broken table"));
            }
            Ok(VecIter::sorted(self.tables[table].clone()))
        }
    }

    fn tables(random: &mut Random) -> (Vec<Vec<Entry>>, Vec<Entry>) {
        let entries = (0..random.below(40)).map(|_| (random.key(), random.tag(4), vec![])).collect();
        let all = VecIter::new(entries).entries().to_vec();
        let mut tables: Vec<Vec<Entry>> = Vec::new();
        for entry in &all {
            match tables.last_mut() {
                Some(table) if table.last().is_some_and(|last| last.0 == entry.0) || random.below(4) > 0 => {
                    table.push(entry.clone());
                }
                _ => tables.push(vec![entry.clone()]),
            }
        }
        (tables, all)
    }

    #[test]
    fn random_walks_agree_with_one_sorted_list() {
        let mut random = Random(5);
        for round in 0..300 {
            let (tables, all) = tables(&mut random);
            let mut run = RunIter::new(Tables::new(tables));
            let mut model = VecIter::sorted(all);
            for _ in 0..200 {
                let (key, tag) = (random.key(), random.target(4));
                let target = InternalKey::new(&key, tag);
                let moved = match random.below(20) {
                    0 => [run.seek_first(), model.seek_first()],
                    1 => [run.seek_last(), model.seek_last()],
                    2..5 => [run.seek(target), model.seek(target)],
                    5..8 => [run.seek_before(target), model.seek_before(target)],
                    8..14 if model.key().is_some() => [run.next(), model.next()],
                    14.. if model.key().is_some() => [run.prev(), model.prev()],
                    _ => continue,
                };
                assert!(moved.iter().all(Result::is_ok));
                assert_eq!(here(&run), here(&model), "round {round}");
            }
        }
    }

    fn three_tables() -> Tables {
        let table = |keys: [u8; 2]| keys.map(|key| (vec![key], Tag::newest_at(1), vec![])).to_vec();
        Tables::new(vec![table(*b"ac"), table(*b"eg"), table(*b"ik")])
    }

    #[test]
    fn a_table_is_opened_when_the_cursor_gets_to_it() {
        let tables = three_tables();
        let opened = Arc::clone(&tables.opened);
        let mut run = RunIter::new(tables);
        assert_eq!(opened.load(Ordering::Relaxed), 0);
        run.seek(InternalKey::new(b"f", Tag::newest_at(1))).unwrap();
        run.seek(InternalKey::new(b"e", Tag::newest_at(1))).unwrap();
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        run.seek(InternalKey::new(b"z", Tag::newest_at(1))).unwrap();
        assert_eq!((here(&run), opened.load(Ordering::Relaxed)), (None, 1));
    }

    #[test]
    fn a_table_that_cannot_be_opened_fails_the_run_for_good() {
        let mut run = RunIter::new(Tables { broken: Some(1), ..three_tables() });
        run.seek_first().unwrap();
        run.next().unwrap();
        assert_eq!(run.key().unwrap().user, b"c");
        assert!(run.next().is_err());
        assert_eq!(here(&run), None);
        assert!(run.prev().is_err() && run.seek_first().is_err() && run.seek_last().is_err());
    }

    #[test]
    fn a_run_without_tables_has_no_entries() {
        let mut run = RunIter::new(Tables::new(Vec::new()));
        let target = InternalKey::new(b"a", Tag::newest_at(1));
        run.seek_first().unwrap();
        run.seek_last().unwrap();
        run.seek(target).unwrap();
        run.seek_before(target).unwrap();
        run.next().unwrap();
        run.prev().unwrap();
        assert_eq!(here(&run), None);
    }
}
