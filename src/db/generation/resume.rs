//! Resuming: writing continues after a failed append to the log or manifest.
//!
//! The end of the file is unknown, so nothing is appended to it again. The writers of the group, or the publisher of
//! the edit, get the error, and writing is *suspended*. Then the store continues in a new generation
//! ([`new_generation`](super::new_generation)):
//!
//! 1. wait for running flushes; take the state without the failed edit
//!    ([`ManifestLog::known_state`](crate::manifest::log::ManifestLog::known_state));
//! 2. write all memtables to tables, so that no older log is needed;
//! 3. put the generation in force; remove old files.
//!
//! Only the commit leader resumes. A thread that finds an attempt due enters the commit queue. After a failure before
//! the renaming of `CURRENT`, the new files are removed and the attempt is retried (`retry`).
//!
//! # On a full disk
//!
//! `RESERVE` is removed first (`disk_space`). Instead of step 2, the active log is made durable up to its last batch
//! ([`Log::cut_active`](crate::db::state::log::Log)). If it has a batch, it is kept as *cut* there: later bytes do
//! not count. The memtables are kept. With at least [`OLDER_LOGS_MAX`] older logs, step 2 is done, and retried if it
//! finds the disk full.
//!
//! # A failed write
//!
//! The write never becomes visible, and its sequence numbers are reused. Its record may be in the old log. If the
//! process ends before `CURRENT` names another manifest, the next opening may find the write; afterwards it is lost
//! permanently. The same applies to a failed edit. Acknowledged writes precede it in the old log until they are in
//! tables of the new manifest.
//!
//! The manifest may name new files of a failed edit. They stay in doubt until a generation is in force.

use crate::db::engine::Engine;
use crate::db::generation::memory::Memory;
use crate::db::generation::suspend::LOOK_INTERVAL;
use crate::db::queues::retry::Work;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::log::OLDER_LOGS_MAX;
use crate::error::{Error, Result};
use crate::sync::lock;

impl Engine {
    /// Resumes suspended writing if an attempt is due. Called by the commit leader only.
    ///
    /// # Errors
    ///
    /// Returns the newest failure.
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
        let next_log = self.next_log.pause();
        let activated = self.move_to_new_generation(memory)?;
        next_log.forget();
        activated?;
        self.lifecycle.end_suspension();
        self.retry.done(Work::Resume);
        self.remove_obsolete_files();
        self.adjust_reserve_file();
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
        // Leaves time to find the attempt due. A shorter time weakens the test but does not fail it.
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
        // This suspension is by a writer that synced the old log and could not append a promise.
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
        // The resuming thread continues when the other thread is queued.
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
            // The batch exceeds all memtables, so it is written once they are empty.
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
        // Other threads are always faster, so each attempt fails before the writer finds it due.
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
