use std::collections::{BTreeMap, VecDeque};

use sievedb::{Db, Iter, Keyspace, Snapshot};

use super::dice::Dice;
use super::history::{History, Key, OWN, SHARED, Space, State};
use super::life::{Life, Outcome};
use super::value::key;
use super::watch::Call;

const KEYS: u64 = 400;

pub(super) type Expected = BTreeMap<Key, Vec<State>>;

pub(super) struct Walk {
    pub(super) iter: Iter<'static>,
    pub(super) expected: Expected,
}

pub(super) struct Worker<'a> {
    pub(super) life: &'a Life,
    pub(super) history: &'a mut History,
    pub(super) dice: Dice,
    pub(super) db: Db,
    pub(super) spaces: [Keyspace; SHARED],
    pub(super) own: Option<Keyspace>,
    pub(super) snapshots: VecDeque<(Snapshot, Space, Expected)>,
    pub(super) walks: VecDeque<Walk>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(life: &'a Life, history: &'a mut History, dice: Dice, db: Db) -> Self {
        let space = |name: &str| db.existing_keyspace(name).unwrap_or_else(|| db.default_keyspace());
        let spaces = [db.default_keyspace(), space(&space_name(1, 0)), space(&space_name(2, 0))];
        let own = db.existing_keyspace(&space_name(OWN, history.thread));
        let (snapshots, walks) = Default::default();
        Self { life, history, dice, db, spaces, own, snapshots, walks }
    }

    pub(super) fn done<T>(
        &self,
        call: Call,
        work: impl FnOnce(&Self) -> sievedb::Result<T>,
    ) -> Result<Option<T>, String> {
        match self.life.call(self.history.thread, call, || work(self))? {
            Outcome::Done(done) => Ok(Some(done)),
            Outcome::Refused | Outcome::InDoubt => Ok(None),
        }
    }

    pub(super) fn any_space(&mut self) -> (Space, Keyspace) {
        match (self.dice.below(SHARED as u64 + 1) as usize, &self.own) {
            (OWN, Some(own)) => (OWN, own.clone()),
            (space, _) => (space % SHARED, self.spaces[space % SHARED].clone()),
        }
    }

    pub(super) fn any_key(&mut self) -> Key {
        let end = if self.dice.one_in(2) { KEYS } else { KEYS / 20 };
        key(self.history.thread, self.dice.below(end))
    }
}

pub(super) fn space_name(space: Space, thread: usize) -> String {
    match space {
        0 => "default".into(),
        OWN => format!("own {thread}"),
        shared => format!("shared {shared}"),
    }
}
