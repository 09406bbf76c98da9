//! A new generation, the steps that put it in force.
//!
//! 1. `CURRENT` is renamed and the directory synced, under the manifest's lock: whoever compares `CURRENT` with what
//!    is in memory holds it. From here on the new manifest counts, and the logs that it does not name do not.
//! 2. Still under that lock, the manifest, the mark and the trees are replaced ([`Engine::install`]). So a version is
//!    visible only after the manifest that describes it is durable.
//! 3. The log gets its first promise and takes batches ([`Engine::activate`]). A crash before that leaves a log without
//!    records, which recovery ignores; nothing is in it, because a batch is appended after the promise.
//! 4. Old logs, the old manifest and files in doubt are obsolete ([`Engine::clean_up`]). The caller removes them: no
//!    manifest that can be in force names them.
//!
//! If step 1 fails, `CURRENT` may name either manifest. Then the new files are kept until a later generation is in
//! force ([`InDoubt`](crate::db::state::lifecycle::InDoubt)).

use crate::db::engine::Engine;
use crate::db::generation::draft::NewGeneration;
use crate::db::queues::retry::Work;
use crate::db::state::keyspace::change::TreeChange;
use crate::db::state::log::LogPosition;
use crate::db::state::next_log::NewLog;
use crate::error::Result;
use crate::filename::FileName;
use crate::manifest::log::ManifestLog;
use crate::sync::lock;

/// What is left to do for a generation whose manifest is in force.
pub(super) struct Installed {
    log: Option<NewLog>,
    /// Files that it does not name any more.
    old: Vec<FileName>,
}

impl Engine {
    /// Puts a generation with a log in force. The result in the result is that of the log's first promise. No edit is
    /// published meanwhile.
    ///
    /// # Errors
    ///
    /// It is unknown which manifest is in force.
    pub(in crate::db) fn put_in_force(&self, new: NewGeneration) -> Result<Result<()>> {
        let Installed { log, old } = self.install(new, &mut self.manifest.lock())?;
        let activated = self.activate(log);
        self.clean_up(old);
        // The batches of the old logs are in tables, or durable in a log that has ended.
        self.completions.complete(LogPosition { number: self.log().active(), offset: 0 }, &Ok(()));
        self.retry.done(Work::BeginLog);
        self.retry.done(Work::PrepareLog);
        Ok(activated)
    }

    /// Puts a generation without a log in force. `current` is the manifest, locked.
    ///
    /// # Errors
    ///
    /// It is unknown which manifest is in force.
    pub(super) fn put_manifest_in_force(
        &self,
        new: NewGeneration,
        current: &mut Option<ManifestLog>,
    ) -> Result<()> {
        self.install(new, current).map(|installed| self.clean_up(installed.old))
    }

    fn install(&self, new: NewGeneration, current: &mut Option<ManifestLog>) -> Result<Installed> {
        let NewGeneration { manifest, log, changes, files, old_logs } = new;
        let manifest = manifest.install().inspect_err(|_| self.lifecycle.keep_files(&changes, files))?;
        self.manifest.set_mark(manifest.state().mark);
        let before = current.replace(manifest).map(|before| FileName::Manifest(before.number()));
        changes.into_iter().for_each(TreeChange::install);
        // No new manifest is long.
        self.retry.done(Work::ReplaceManifest);
        Ok(Installed { log, old: old_logs.into_iter().map(FileName::Log).chain(before).collect() })
    }

    /// Appends the first promise to this log, which is active then; `None`: the log is active since the store was
    /// opened.
    ///
    /// # Errors
    ///
    /// The log is active, but nothing can be appended to it.
    pub(super) fn activate(&self, log: Option<NewLog>) -> Result<()> {
        let mark = self.manifest.mark();
        match log {
            Some(NewLog { number, writer, .. }) => self.log().activate(number, writer, mark),
            None => self.log().begin(mark),
        }
    }

    /// Makes these files obsolete, and with them all files in doubt: it is certain now which manifest is in force.
    fn clean_up(&self, old: Vec<FileName>) {
        let in_doubt = std::mem::take(&mut lock(&self.lifecycle.suspension).in_doubt);
        self.log().forget(&old);
        old.into_iter().chain(in_doubt.files).for_each(|name| self.files.obsolete.add(name));
        drop(in_doubt.tables);
    }
}
