//! Resuming: writing goes on by itself after an append to the log or to the manifest failed.
//!
//! After such a failure the end of the file is unknown, so nothing later is appended to it. The writers of the group,
//! or the caller whose edit it was, get the error, and writing is *suspended*: no batch is logged and no edit is
//! published. Then the store goes on in a new generation ([`new_generation`](super::new_generation)):
//!
//! 1. wait for running flushes; take the state after the last edit that was appended
//!    ([`ManifestLog::known_state`](crate::manifest::log::ManifestLog::known_state)): the edit that failed has no effect;
//! 2. seal all memtables and write them into tables. So the new manifest names no older log;
//! 3. prepare the generation, put it in force, and remove old files.
//!
//! Only the commit leader resumes, so nothing is written meanwhile. A thread that finds an attempt due enters the
//! commit queue; when its turn comes, the attempt may have been made. A failure before `CURRENT` is renamed removes the
//! new files, and the work is tried again like other work (`retry`).
//!
//! # On a full disk
//!
//! There may be no room for the memtables. So if the disk is full, `RESERVE` is given up first (`disk_space`), and
//! instead of step 2 the active log is made durable up to its last batch
//! ([`Log::cut_active`](crate::db::state::log::Log)). The new manifest names the old logs too, with the end of this one:
//! it is *cut* there, and bytes behind, which may be a part of the write that failed, do not count. The memtables stay,
//! and are flushed like others. A log without batches is not kept. Beyond [`OLDER_LOGS_MAX`] logs this is not done, and
//! resuming waits for room.
//!
//! # A failed write
//!
//! It is never visible, and its sequence numbers are given again. Its record may be in the old log, whole or in part:
//! the log counts until `CURRENT` names another manifest. So if the machine or the process ends before that, the next
//! opening may find the write; afterwards it is gone for good. The same is true of an edit that failed, in the old
//! manifest. Acknowledged writes are safe either way: they are in the old log, before the record that failed, until they
//! are in tables that the new manifest names.
//!
//! The new files of an edit that failed stay in doubt until a generation is in force, because the manifest may name
//! them.

use crate::db::engine::Engine;
use crate::db::generation::memory::Memory;
use crate::db::generation::suspend::LOOK_INTERVAL;
use crate::db::queues::retry::Work;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::log::OLDER_LOGS_MAX;
use crate::error::{Error, Result};
use crate::sync::lock;

impl Engine {
    /// Resumes writing if it is suspended and an attempt is due. Only the commit leader calls this.
    ///
    /// # Errors
    ///
    /// The failure of the newest attempt.
    #[inline]
    pub(in crate::db) fn resume_if_due(&self, is_closing: bool) -> Result<()> {
        if self.lifecycle.is_suspended() { self.resume_now_if_due(is_closing) } else { Ok(()) }
    }

    #[cold]
    fn resume_now_if_due(&self, is_closing: bool) -> Result<()> {
        let Some(cause) = self.lifecycle.suspended_by() else { return Ok(()) };
        if !is_closing && !self.may_try(Work::Resume) {
            return Err(cause);
        }
        self.resume(&cause).map_err(|error| {
            let error = self.fail_if_final(error);
            if !self.lifecycle.has_failed() {
                self.lifecycle.suspend(&mut lock(&self.lifecycle.suspension), error.clone());
                self.put_off(Work::Resume, error.clone());
            }
            error
        })
    }

    fn resume(&self, cause: &Error) -> Result<()> {
        // First: there may be no room otherwise.
        self.remove_obsolete_files();
        let is_full = is_out_of_space(cause);
        if is_full {
            self.give_up_reserve_file(cause);
        }
        let memory =
            if is_full && self.log().older() < OLDER_LOGS_MAX { Memory::Kept } else { Memory::Flushed };
        let reservations = &self.background.reservations;
        loop {
            let epoch = reservations.epoch();
            if !reservations.is_flushing() {
                break;
            }
            reservations.wait_past(epoch, Some(LOOK_INTERVAL));
        }
        // What the manifest names may be prepared until here, and is given up below. No edit is published after
        // this, because writing is suspended.
        let next_log = self.next_log.pause();
        let activated = self.move_to_new_generation(memory)?;
        next_log.forget();
        activated?;
        self.lifecycle.end_suspension();
        self.retry.done(Work::Resume);
        self.remove_obsolete_files();
        self.look_for_space();
        tracing::info!(dir = %self.files.dir.display(), log = self.log().active(), "writing resumes");
        self.background.notify();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::db::state::keyspace::change::Change;
    use crate::fs::MemFs;
    use crate::manifest::edit::EditItem;
    use crate::options::Options;

    #[test]
    fn threads_end_when_a_store_is_closed_while_an_attempt_to_resume_is_due() {
        let fs = Arc::new(MemFs::new());
        let db = Options::new().fs(fs).background_threads(2).open("/db").unwrap();
        let engine = db.engine();
        assert!(engine.lifecycle.set_closed());
        let cause = Error::io("append to", Path::new("/db"), io::ErrorKind::StorageFull.into());
        engine.suspend(cause);
        engine.retry.at_once();
        engine.background.notify();
        // Time in which they find that it is due; without it the test is weaker, but does not fail.
        std::thread::sleep(Duration::from_millis(20));
        let (done, ended) = mpsc::channel();
        let stopping = db.clone();
        std::thread::spawn(move || {
            stopping.engine().background.stop();
            done.send(())
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("the threads end");
    }

    #[test]
    fn a_failure_of_a_log_that_is_not_in_use_any_more_suspends_nothing() {
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        let engine = db.engine();
        let cause = || Error::io("append to", Path::new("/db"), io::ErrorKind::StorageFull.into());
        let before = engine.log().active();
        engine.suspend_log(before, cause());
        assert!(engine.lifecycle.is_suspended() && db.background_error().is_some());
        db.put("k", "v").unwrap();
        // By a writer that synced the old log, and could not append a promise to it.
        engine.suspend_log(before, cause());
        assert!(!engine.lifecycle.is_suspended() && db.background_error().is_none());
    }

    #[test]
    fn a_leader_that_needs_room_does_not_wait_for_threads_that_wait_for_it() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(1).memory_budget(1 << 20);
        let db = options.open("/db").unwrap();
        db.put("k", "v").unwrap();
        db.engine().suspend(Error::io("append to", Path::new("/db"), io::ErrorKind::StorageFull.into()));
        // Who resumes goes on when the other one waits in the queue.
        let (looks, has_waited) = (db.clone(), AtomicBool::new(false));
        fs.observe(move |_, _| {
            if !has_waited.swap(true, Ordering::SeqCst) {
                let is_alone = || looks.engine().commit.waiting() == 0;
                (0..2000)
                    .take_while(|_| is_alone())
                    .for_each(|_| std::thread::sleep(Duration::from_millis(5)));
            }
            Ok(())
        });
        let (tells, told) = mpsc::channel();
        let writer = db.clone();
        std::thread::spawn(move || {
            writer.engine().retry.at_once();
            // More than all memtables may take: it is written when they are empty.
            tells.send(writer.put("large", vec![7; 300 << 10]))
        });
        told.recv_timeout(Duration::from_secs(60)).expect("the write ends").unwrap();
        fs.stop_observing();
        assert!(!db.engine().lifecycle.is_suspended() && db.contains("large").unwrap());
    }

    #[test]
    fn a_writer_gets_the_error_of_an_attempt_that_another_thread_made() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(1).open("/db").unwrap();
        db.put("k", "v").unwrap();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        fs.observe(move |_, _| Err(full()));
        let fail = || Error::io("append to", Path::new("/db"), full());
        db.engine().suspend(fail());
        let (tells, told) = mpsc::channel();
        let writer = db.clone();
        std::thread::spawn(move || tells.send(writer.put("l", "v")));
        // Other threads are always faster: each attempt has failed before the writer finds that one is due.
        let written = (0..500).find_map(|_| {
            db.engine().put_off(Work::Resume, fail());
            told.recv_timeout(Duration::from_millis(20)).ok()
        });
        fs.stop_observing();
        assert!(matches!(written, Some(Err(Error::Io { op: "append to", .. }))), "{written:?}");
    }

    #[test]
    fn no_edit_is_appended_while_writing_is_suspended() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open("/db").unwrap();
        db.put("k", "v").unwrap();
        let engine = db.engine();
        let manifest = || {
            let files = fs.files(Path::new("/db")).into_iter();
            files.filter(|(path, _)| path.to_string_lossy().contains("MANIFEST")).collect::<Vec<_>>()
        };
        let before = manifest();
        let cause = Error::io("append to", Path::new("/db"), io::ErrorKind::StorageFull.into());
        engine.suspend(cause);
        let refused = engine.publish(vec![EditItem::LastSeqno(9)], Change::None);
        assert!(matches!(refused, Err(Error::Io { op: "append to", .. })));
        assert_eq!(manifest(), before);
        db.put("l", "v").unwrap();
        assert!(!engine.lifecycle.is_suspended() && db.background_error().is_none());
        assert!(manifest().len() == 1 && manifest() != before);
        engine.publish(vec![EditItem::LastSeqno(9)], Change::None).unwrap();
    }
}
