//! The writing and maintaining calls of a thread, and the loop that picks a call. The reading calls are in
//! [`super::reads`].

use std::time::Duration;

use sievedb::{Durability, WriteBatch};

use super::dice::{filter_policy, keyspace_options};
use super::history::{OWN, Own, Stamp};
use super::life::Outcome;
use super::value::{HEAD_BYTES, value};
use super::watch::Call;
use super::worker::{Worker, space_name};

impl Worker<'_> {
    pub(super) fn work(mut self) -> Result<(), String> {
        while !self.life.is_over() {
            let mut dice = self.dice.below(1000);
            let call = Call::ALL.iter().find(|(_, _, weight)| match dice.checked_sub(*weight) {
                Some(less) => {
                    dice = less;
                    false
                }
                None => true,
            });
            let call = call.map_or(Call::Get, |(call, ..)| *call);
            self.make(call)
                .map_err(|wrong| format!("thread {}, {}: {wrong}", self.history.thread, call.name()))?;
            if self.dice.one_in(8) {
                std::thread::sleep(Duration::from_micros(self.dice.below(1000)));
            }
        }
        while !self.snapshots.is_empty() {
            self.read_snapshot()?;
        }
        while let Some(walk) = self.walks.pop_front() {
            self.walk_on(walk, usize::MAX)?;
        }
        Ok(())
    }

    fn make(&mut self, call: Call) -> Result<(), String> {
        match call {
            Call::Put | Call::Delete | Call::Batch | Call::PutSynced | Call::BatchSynced => self.write(call),
            Call::Sync => self.sync(),
            Call::Get | Call::MultiGet | Call::Contains | Call::MayContain => self.look(call),
            Call::Prefix | Call::RangeBackward => self.scan(call),
            Call::Snapshot => self.take_snapshot(),
            Call::SnapshotRead => self.read_snapshot(),
            Call::Iterate => self.iterate(),
            Call::Flush | Call::Compact | Call::Refilter | Call::SetOptions => self.maintain(call),
            Call::CreateKeyspace => self.create_own(),
            Call::DropKeyspace => self.drop_own(),
            Call::Verify => self.verify(),
            _ => self.done(Call::Stats, |worker| Ok(worker.db.stats())).map(drop),
        }
    }

    fn any_len(&mut self) -> usize {
        let end = match self.dice.below(1000) {
            0 => 300 << 10,
            1..20 => 8 << 10,
            _ => 400,
        };
        HEAD_BYTES + self.dice.below(end) as usize
    }

    fn write(&mut self, call: Call) -> Result<(), String> {
        let is_batch = matches!(call, Call::Batch | Call::BatchSynced);
        let is_synced = matches!(call, Call::PutSynced | Call::BatchSynced);
        let count = if is_batch { 1 + self.dice.below(12) } else { 1 };
        let (mut batch, mut writes) = (WriteBatch::new(), Vec::new());
        let mut last = self.spaces[0].clone();
        for _ in 0..count {
            let ((space, keyspace), key) = (self.any_space(), self.any_key());
            let is_delete = call == Call::Delete || is_batch && self.dice.one_in(4);
            let stamp = Stamp { batch: self.history.next(), len: self.any_len() };
            match is_delete {
                true => batch.delete_in(&keyspace, &key),
                false => batch.put_in(&keyspace, &key, value(&key, stamp)),
            };
            writes.push((space, key, (!is_delete).then_some(stamp)));
            last = keyspace;
        }
        let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
        let (db, write) = (self.db.clone(), writes.first().cloned());
        let began = self.life.tick();
        let outcome = self.life.call(self.history.thread, call, || match write {
            Some((_, key, Some(stamp))) if call == Call::Put => last.put(&key, value(&key, stamp)),
            Some((_, key, None)) if call == Call::Delete => last.delete(&key),
            _ => db.write_with(batch, durability),
        });
        let times = (began, self.life.tick());
        match outcome? {
            Outcome::Done(()) => {
                self.history.add(&writes, times, true);
                if is_synced {
                    self.history.set_durable(began);
                }
            }
            Outcome::InDoubt => {
                self.history.add(&writes, times, false);
                std::thread::sleep(Duration::from_millis(10));
            }
            Outcome::Refused => {}
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        let began = self.life.tick();
        if self.done(Call::Sync, |worker| worker.db.sync())?.is_some() {
            self.history.synced = began;
        }
        Ok(())
    }

    fn maintain(&mut self, call: Call) -> Result<(), String> {
        let (_, keyspace) = self.any_space();
        let mut dice = self.dice.clone();
        self.done(call, |_| match call {
            Call::Flush => keyspace.flush(),
            Call::Compact => keyspace.compact(),
            Call::Refilter => keyspace.refilter(filter_policy(&mut dice)),
            _ => keyspace.set_options(keyspace_options(&mut dice)),
        })?;
        self.dice = dice;
        self.dice.below(2);
        Ok(())
    }

    fn create_own(&mut self) -> Result<(), String> {
        if self.history.own != Own::Absent {
            return Ok(());
        }
        let (name, options) = (space_name(OWN, self.history.thread), keyspace_options(&mut self.dice));
        let outcome =
            self.life.call(self.history.thread, Call::CreateKeyspace, || self.db.keyspace(&name, options));
        match outcome? {
            Outcome::Done(own) => (self.own, self.history.own) = (Some(own), Own::Present),
            Outcome::Refused => {}
            Outcome::InDoubt => self.history.own = Own::InDoubt,
        }
        Ok(())
    }

    fn drop_own(&mut self) -> Result<(), String> {
        let Some(own) = self.own.take() else { return Ok(()) };
        let name = own.name().to_owned();
        match self.life.call(self.history.thread, Call::DropKeyspace, || self.db.drop_keyspace(&name))? {
            Outcome::Done(()) => {
                self.history.forget_own();
                self.history.own = Own::Absent;
                match own.get("k") {
                    Err(sievedb::Error::KeyspaceDropped { .. } | sievedb::Error::Closed) => {}
                    other => return Err(format!("reading a dropped keyspace gave {other:?}")),
                }
            }
            Outcome::Refused => self.own = Some(own),
            Outcome::InDoubt => self.history.own = Own::InDoubt,
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), String> {
        let fired = self.life.weather.all_fired();
        let Some(report) = self.done(Call::Verify, |worker| worker.db.verify())? else { return Ok(()) };
        match report.damage.first() {
            Some(damage) if self.life.weather.all_fired() == fired => Err(format!("damage: {damage}")),
            _ => Ok(()),
        }
    }
}
