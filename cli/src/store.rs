//! Opens stores: read-only, next to a writer, for commands that only read.

use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sievedb::limits::KEYSPACE_NAME_BYTES_MAX;
use sievedb::{AsOf, Db, Keyspace, KeyspaceOptions, LevelStats, Options};

use crate::escape::escape;
use crate::failure::{Failure, Result, warn};
use crate::line_format::{Content, LineFormat};
use crate::lines::Lines;
use crate::progress::watch_settling;
use crate::units;

pub(crate) const DEFAULT_KEYSPACE: &str = "default";

pub(crate) const DEMOS: &str = "sievedb-demo";

pub(crate) const JOURNALS: &str = "uniq-journals";

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Opening {
    /// Memory that the store may use: bytes, or a number with K, M or G, such as 64M [default: 512M, or a quarter of
    /// the memory of the machine or the container]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<usize>,
}

impl Opening {
    pub(crate) fn options(self) -> Options {
        let options = Options::new();
        match self.memory {
            Some(bytes) => options.memory_budget(bytes),
            None => options,
        }
    }

    pub(crate) fn for_reading(self, dir: &Path) -> Result<Db> {
        let db = self.options().read_only().open(dir)?;
        note_as_of(db.open_report().as_of);
        with_notes(db)
    }
}

pub(crate) fn size(text: &str) -> Result<usize, String> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &*text[end..].to_ascii_uppercase() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err("a number of bytes, or one with K, M or G".into()),
    };
    let number: usize = text[..end].parse().map_err(|_| "a number of bytes, or one with K, M or G")?;
    number.checked_mul(1 << shift).ok_or_else(|| "more than this machine can address".into())
}

/// The argument of `--limit-rate`.
pub(crate) fn rate(text: &str) -> Result<usize, String> {
    match size(text)? {
        0 => Err("a rate is at least one byte a second; without the option it is not limited".into()),
        rate => Ok(rate),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Store {
    /// The directory of the store.
    #[arg(value_name = "DB")]
    pub(crate) db: PathBuf,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

impl Store {
    pub(crate) fn for_reading(&self) -> Result<Db> {
        self.opening.for_reading(&self.db)
    }

    pub(crate) fn existing(&self) -> Result<Db> {
        with_notes(self.opening.options().create_if_missing(false).open(&self.db)?)
    }

    pub(crate) fn or_create(&self) -> Result<Db> {
        check_parent(&self.db)?;
        with_notes(self.opening.options().open(&self.db)?)
    }
}

pub(crate) fn input(db: &Path, file: &Path, format: LineFormat, content: Content) -> Result<Lines> {
    let is_swapped = || file.is_dir() || file.as_os_str() != "-" && db.is_file();
    Lines::open(file, format, content).map_err(|failure| {
        if is_swapped() {
            failure.with_note("the order is DB FILE: the store, then the input")
        } else {
            failure
        }
    })
}

/// The parent of a new store or file is not created: it may be mistyped, or an unmounted disk.
pub(crate) fn check_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent
        && parent.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    {
        let (path, parent) = (path.display(), parent.display());
        return Err(Failure::Refused(format!("cannot create {path}: there is no directory {parent}")));
    }
    Ok(())
}

/// Whether a command waits for due compactions.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Settling {
    /// End when the lines are durable, without waiting for compactions. Lookups are slower until the next write or compaction.
    #[arg(long)]
    no_settle: bool,
}

impl Settling {
    pub(crate) const NEVER: Self = Self { no_settle: true };

    pub(crate) fn settle(self, db: &Db) -> Result<()> {
        if !self.no_settle {
            watch_settling(db)?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Within {
    /// The keyspace to work on, instead of "default".
    #[arg(long, value_name = "NAME", value_parser = keyspace_name)]
    pub(crate) keyspace: Option<String>,
}

impl Within {
    pub(crate) fn existing(&self, db: &Db) -> Result<Keyspace> {
        let Some(name) = &self.keyspace else { return Ok(db.default_keyspace()) };
        existing_keyspace(db, name)
    }

    pub(crate) fn note_left_out(&self, db: &Db) {
        let others = self.others(db);
        if others.is_empty() {
            return;
        }
        let count = units::counted(others.len() as u64, "keyspace is", "keyspaces are");
        note(&format!("{count} left out: {}; --keyspace names one", first_names(&others)));
    }

    /// The keyspaces besides the default one and the records of commands; empty if a keyspace was named.
    pub(crate) fn others(&self, db: &Db) -> Vec<String> {
        if self.keyspace.is_some() {
            return Vec::new();
        }
        let is_left_out = |name: &String| ![DEFAULT_KEYSPACE, DEMOS, JOURNALS].contains(&name.as_str());
        db.keyspaces().into_iter().filter(is_left_out).collect()
    }

    pub(crate) fn or_create(&self, db: &Db) -> Result<Keyspace> {
        let Some(name) = &self.keyspace else { return Ok(db.default_keyspace()) };
        let is_new = db.existing_keyspace(name).is_none();
        let keyspace = db.keyspace(name, KeyspaceOptions::default())?;
        if is_new {
            note(&format!("created keyspace \"{}\"", escape(name.as_bytes())));
        }
        Ok(keyspace)
    }
}

pub(crate) fn keyspace_name(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err("the name of a keyspace is not empty".into()),
        1..=KEYSPACE_NAME_BYTES_MAX => Ok(name.to_owned()),
        _ => Err(format!("the name of a keyspace has at most {KEYSPACE_NAME_BYTES_MAX} bytes")),
    }
}

pub(crate) fn note_as_of(as_of: Option<AsOf>) {
    if let Some(AsOf { seqno, time, in_use: true, .. }) = as_of {
        note(&format!("as of sequence number {seqno}, {}; the store is in use", units::utc(time)));
    }
}

pub(crate) fn as_of_object(as_of: Option<AsOf>) -> Value {
    let object = |AsOf { seqno, time, in_use, .. }| json!({ "seqno": seqno, "time": units::utc(time), "in_use": in_use });
    as_of.map_or(Value::Null, object)
}

pub(crate) fn note(message: &str) {
    warn("sievedb", &format!("note: {message}"));
}

fn with_notes(db: Db) -> Result<Db> {
    if let Some(error) = &db.open_report().full_disk {
        note(&format!("the disk is full, so the logs were kept as they are ({error})"));
    }
    for tail in &db.open_report().dropped {
        note(&format!(
            "the last {} of {}, from offset {} on, are a write that was never synced and is incomplete; \
             they are ignored ({})",
            units::counted(tail.bytes, "byte", "bytes"),
            tail.file.display(),
            tail.offset,
            tail.reason
        ));
    }
    Ok(db)
}

pub(crate) fn existing_keyspace(db: &Db, name: &str) -> Result<Keyspace> {
    db.existing_keyspace(name).ok_or_else(|| {
        Failure::Refused(format!(
            "there is no keyspace {} in {}; its keyspaces are {}",
            escape(name.as_bytes()),
            db.path().display(),
            first_names(&db.keyspaces())
        ))
    })
}

fn first_names(names: &[String]) -> String {
    const NAMES_MAX: usize = 10;
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| escape(name.as_bytes())).collect();
    match names.len().checked_sub(NAMES_MAX) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more (`sievedb keyspaces` lists all)", shown.join(", ")),
    }
}

pub(crate) fn total(db: &Db, keyspace: Option<&str>) -> LevelStats {
    let mut sum = LevelStats::default();
    let (mut rate, mut weight) = (0.0, 0.0);
    for stats in db.stats().keyspaces.iter().filter(|stats| keyspace.is_none_or(|name| stats.name == name)) {
        let total = stats.total();
        sum.runs += total.runs;
        sum.tables += total.tables;
        sum.bytes += total.bytes;
        sum.entries += total.entries + stats.memtable_entries;
        sum.keys += total.keys;
        sum.filter_bytes += total.filter_bytes;
        sum.filter_keys += total.filter_keys;
        if let Some(predicted) = total.predicted_rate {
            rate += predicted * total.filter_keys as f64;
            weight += total.filter_keys as f64;
        }
    }
    sum.predicted_rate = (weight > 0.0).then(|| rate / weight);
    sum
}

pub(crate) fn note_filters(db: &Db) {
    let unusable = db.stats().unusable_filters;
    if unusable > 0 {
        note(&format!(
            "{} cannot be used; answers are right, but take longer",
            units::counted(unusable, "filter", "filters")
        ));
    }
}

pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    // Deleted since the listing.
    let len = |entry: &DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
    Ok(files(dir)?.iter().map(len).sum())
}

pub(crate) fn oldest_table(dir: &Path) -> Result<Option<PathBuf>> {
    let is_table = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    Ok(files(dir)?.iter().map(DirEntry::path).filter(is_table).min())
}

fn files(dir: &Path) -> Result<Vec<DirEntry>> {
    let cannot = |error| Failure::io(format!("list {}", dir.display()), error);
    std::fs::read_dir(dir).and_then(Iterator::collect).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units_and_what_is_no_size_is_refused() {
        let sizes = ["0", "4096", "64K", "64k", "1M", "1MiB", "2g"].map(|text| size(text).unwrap());
        assert_eq!(sizes, [0, 4096, 65_536, 65_536, 1 << 20, 1 << 20, 2 << 30]);
        for bad in ["", "M", "1.5M", "-1", "1T", "1 M", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
