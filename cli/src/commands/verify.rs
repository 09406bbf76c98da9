use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sievedb::{Concerned, Damage, Error, VerifyReport};

use super::stats::expiry_in_short;
use crate::escape::{escape, shortened};
use crate::failure::{Failure, Result, answered, remedy};
use crate::json::{Format, Object, put_bytes};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, Opening};
use crate::units;

/// Reads everything in a store and lists all damage.
///
/// Every table, block, filter, log and the manifest is read and compared, and every key is probed in its table's filters. It
/// continues after damage, and prints each piece with its file, its offset and the keys that it can concern. Exit code 0: no
/// damage; 3: damage. Foreign files and the torn end that a crash leaves are listed, but are no damage. Next to a writer, one
/// moment of the store is verified; a file that the writer removes is listed as changed, also with exit code 3. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb verify my.db
  sievedb verify my.db --json | jq -r '.damage[].file' | sort -u")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut bar = None;
    let report = args.opening.options().verify_with(&args.db, |progress| {
        bar.get_or_insert_with(|| Progress::of_bytes("verifying", Some(progress.bytes)))
            .at(progress.bytes_done);
        ControlFlow::Continue(())
    })?;
    drop(bar);
    store::note_as_of(report.as_of);
    let mut out = Output::new();
    let printed =
        if args.format.json { out.text(&object(&report).to_string()) } else { print(&report, &mut out) };
    answered(printed.and_then(|()| out.finish()), verdict(&report, &args.db))
}

fn verdict(report: &VerifyReport, db: &Path) -> Result<()> {
    let found = report.damage.len() as u64 + report.omitted;
    let changed = report.changed.len() as u64;
    if found == 0 && changed == 0 {
        return Ok(());
    }
    if found == 0 {
        let files = units::counted(changed, "file", "files");
        let failure =
            format!("{files} of {} changed and could not be verified; no damage found", db.display());
        return Err(Failure::Refused(failure).with_note("verify again"));
    }
    let pieces = units::counted(found, "piece of damage", "pieces of damage");
    Err(Failure::Refused(format!("{pieces} in {}", db.display())).with_note(remedy(db)))
}

fn print(report: &VerifyReport, out: &mut Output) -> Result<()> {
    out.text(&format!("manifest   {}", units::counted(report.edits, "edit", "edits")))?;
    let batches = units::counted(report.batches, "batch", "batches");
    out.text(&format!("logs       {}, {batches}", units::counted(report.logs, "log", "logs")))?;
    out.text(&format!(
        "tables     {}, {}, {}",
        units::counted(report.tables, "table", "tables"),
        units::counted(report.entries, "entry", "entries"),
        units::bytes(report.bytes)
    ))?;
    let filters = units::counted(report.filters, "filter", "filters");
    out.text(&format!("filters    {filters} probed with every key"))?;
    for (keyspace, expiry) in &report.expiry {
        let expiry = expiry_in_short(expiry);
        out.text(&format!("expiry     keyspace {}: {expiry}", escape(keyspace.as_bytes())))?;
    }
    for tail in &report.dropped {
        let bytes = units::counted(tail.bytes, "byte", "bytes");
        out.text(&format!("torn       {} from offset {}: {bytes}", name(&tail.file), tail.offset))?;
    }
    for file in &report.ignored {
        out.text(&format!("ignored    {}: {}", escape(file.name.as_bytes()), file.why))?;
    }
    for error in &report.changed {
        out.text(&format!("changed    {error}"))?;
    }
    for damage in &report.damage {
        out.text(&format!("damage     {}", message(&damage.error)))?;
        out.text(&format!("           concerns {}", concerns(damage)))?;
    }
    match (report.damage.len(), report.omitted) {
        (0, _) if report.changed.is_empty() => out.text("sound      no damage found"),
        (0, _) => Ok(()),
        (_, 0) => Ok(()),
        (_, more) => out.text(&format!("           and {} more", units::count(more))),
    }
}

pub(super) fn name(file: &Path) -> String {
    escape(file.file_name().unwrap_or(file.as_os_str()).as_encoded_bytes())
}

pub(super) fn message(error: &Error) -> String {
    match error {
        Error::Corruption { file, offset, what, detail, .. } => {
            format!("{} at offset {offset}: {what}: {detail}", name(file))
        }
        other => other.to_string(),
    }
}

fn concerns(damage: &Damage) -> String {
    let keys = match damage.concerns() {
        Concerned::Keys(keys) => keys,
        Concerned::Unflushed => return "any key that was written after the last flush".into(),
        _ => return "any key".into(),
    };
    let (first, last) = (shortened(&keys.first), shortened(&keys.last));
    let range = if first == last { format!("key {first}") } else { format!("keys {first} to {last}") };
    match &keys.keyspace {
        Some(keyspace) => format!("{range} of keyspace {}", escape(keyspace.as_bytes())),
        None => range,
    }
}

fn object(report: &VerifyReport) -> Value {
    let torn = report.dropped.iter().map(|tail| {
        json!({ "file": name(&tail.file), "offset": tail.offset, "bytes": tail.bytes, "reason": tail.reason })
    });
    let ignored = report.ignored.iter().map(|file| json!({ "file": file.name, "why": file.why }));
    json!({
        "sound": report.damage.is_empty() && report.changed.is_empty(),
        "as_of": store::as_of_object(report.as_of),
        "edits": report.edits,
        "logs": report.logs,
        "batches": report.batches,
        "tables": report.tables,
        "table_bytes": report.bytes,
        "entries": report.entries,
        "filters": report.filters,
        "expiry": serde_json::to_value(&report.expiry).unwrap_or_default(),
        "torn": torn.collect::<Value>(),
        "ignored": ignored.collect::<Value>(),
        "changed": report.changed.iter().map(ToString::to_string).collect::<Value>(),
        "damage": report.damage.iter().map(damage_object).collect::<Value>(),
        "damage_not_listed": report.omitted,
    })
}

fn damage_object(damage: &Damage) -> Value {
    let mut object = Object::new();
    object.insert("message".into(), message(&damage.error).into());
    match &damage.error {
        Error::Corruption { file, offset, what, .. } => {
            object.insert("file".into(), name(file).into());
            object.insert("offset".into(), (*offset).into());
            object.insert("what".into(), (*what).into());
        }
        Error::Unsupported { file, what, .. } => {
            object.insert("file".into(), name(file).into());
            object.insert("what".into(), (*what).into());
        }
        Error::Io { path, .. } => drop(object.insert("file".into(), name(path).into())),
        _ => {}
    }
    object.insert("concerns".into(), concerns(damage).into());
    if let Some(keys) = &damage.keys {
        object.insert("keyspace".into(), keys.keyspace.clone().into());
        put_bytes(&mut object, "first_key", &keys.first);
        put_bytes(&mut object, "last_key", &keys.last);
    }
    object.into()
}
