use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;

use serde_json::{Value, json};
use sievedb::{DoubtfulKeys, LostEntries, LostRange, LostWrites, ManifestCondition, RepairReport};

use super::stats::expiry_in_short;
use super::verify::{message, name};
use crate::escape::{escape, quoted, shortened};
use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object, put_bytes};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{Opening, check_parent};
use crate::units;

const RANGES_SHOWN: usize = 20;

/// Makes a new store from the readable part of a damaged one, which is only read.
///
/// NEW must be missing or empty. Its keyspaces get the certain values: no write up to the printed sequence number, the last one
/// before lost writes, has deleted or replaced them. Doubtful values go to the keyspace "doubtful", or "doubtful:NAME" for a
/// keyspace other than "default". Lost and doubtful data are printed as ranges of keys and counts. Exit code 0: all data are
/// certain; 3: some are lost or doubtful.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb repair my.db --into repaired.db
  sievedb scan repaired.db --keyspace doubtful")]
pub(crate) struct Args {
    /// The directory of the damaged store.
    db: PathBuf,
    /// The directory of the new store.
    #[arg(long, value_name = "NEW")]
    into: PathBuf,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    check_parent(&args.into)?;
    let is_filled = || std::fs::read_dir(&args.into).is_ok_and(|mut files| files.next().is_some());
    let (was_filled, mut bar) = (is_filled(), None);
    let report = args.opening.options().repair_with(&args.db, &args.into, |progress| {
        bar.get_or_insert_with(|| Progress::of_items("repairing", Some(progress.keyspaces)))
            .at(progress.keyspaces_done);
        ControlFlow::Continue(())
    });
    drop(bar);
    let report = report.map_err(|error| {
        let failure = Failure::from(error);
        if was_filled || !is_filled() {
            return failure;
        }
        let into = quoted(&args.into.to_string_lossy());
        failure.with_note(format!("{into} is incomplete: delete it before the next repair"))
    })?;
    let mut out = Output::new();
    let printed =
        if args.format.json { out.text(&object(&report).to_string()) } else { print(&report, &mut out) };
    answered(printed.and_then(|()| out.finish()), verdict(&report, args))
}

fn verdict(report: &RepairReport, args: &Args) -> Result<()> {
    if report.is_complete() {
        return Ok(());
    }
    let (db, into) = (args.db.display(), args.into.display());
    let why =
        match (report.lost_entries.is_empty() && report.lost_writes.is_empty(), report.doubtful.is_empty()) {
            (false, false) => "some of it is lost, and some doubtful",
            (false, true) => "some of it is lost",
            (true, false) => "some of it is doubtful",
            (true, true) => "its manifest has lost edits",
        };
    Err(Failure::Refused(format!("{into} has what could be read of {db}: {why}")))
}

fn print(report: &RepairReport, out: &mut Output) -> Result<()> {
    print_findings(report, out)?;
    match report.is_complete() {
        true => out.text("complete   all data are certain"),
        false => Ok(()),
    }
}

pub(super) fn print_findings(report: &RepairReport, out: &mut Output) -> Result<()> {
    let manifest = match report.manifest {
        ManifestCondition::Whole => "whole",
        ManifestCondition::Cut => "edits are missing; tables that it does not name are doubtful",
        _ => "missing; every entry is doubtful",
    };
    out.text(&format!("manifest   {manifest}"))?;
    let logs = units::counted(report.logs, "log", "logs");
    out.text(&format!("read       {}, {logs}", units::counted(report.tables, "table", "tables")))?;
    let may_lack_writes = !report.lost_writes.is_empty() || report.manifest != ManifestCondition::Whole;
    for keyspace in &report.keyspaces {
        let what = if keyspace.is_doubtful { "doubtful  " } else { "kept      " };
        let keys = units::counted(keyspace.keys, "key", "keys");
        let as_of = keyspace.as_of.filter(|_| may_lack_writes);
        let as_of = as_of.map_or_else(String::new, |seqno| format!(", as of sequence {seqno}"));
        out.text(&format!("{what} {keys} in keyspace {}{as_of}", escape(keyspace.name.as_bytes())))?;
        if let Some(expiry) = &keyspace.expiry {
            out.text(&format!("           {}", expiry_in_short(expiry)))?;
        }
    }
    print_doubtful(&report.doubtful, out)?;
    report.lost_entries.iter().try_for_each(|lost| print_lost(lost, out))?;
    for lost in &report.lost_writes {
        out.text(&format!("lost       {}: {}", lost.file, writes(lost)))?;
        out.text("           any key may have been written there: it has its value from before, or none")?;
    }
    for tail in &report.dropped {
        let bytes = units::counted(tail.bytes, "byte", "bytes");
        out.text(&format!("torn       {} from offset {}: {bytes}", name(&tail.file), tail.offset))?;
    }
    for file in &report.left_out {
        out.text(&format!("left out   {}: {}", escape(file.name.as_bytes()), file.why))?;
    }
    for error in &report.damage {
        out.text(&format!("damage     {}", message(error)))?;
    }
    Ok(())
}

fn print_doubtful(ranges: &[DoubtfulKeys], out: &mut Output) -> Result<()> {
    for of_keyspace in ranges.chunk_by(|a, b| a.into == b.into) {
        let keys = of_keyspace.iter().map(|range| range.keys).sum();
        let of = of_keyspace[0].keyspace.as_deref().map_or_else(
            || "an unknown keyspace".to_owned(),
            |name| format!("keyspace {}", escape(name.as_bytes())),
        );
        out.text(&format!("not sure   {} of {of}", units::counted(keys, "key", "keys")))?;
        for range in of_keyspace.iter().take(RANGES_SHOWN) {
            let (first, last) = (shortened(&range.first), shortened(&range.last));
            let keys = units::counted(range.keys, "key", "keys");
            match range.first == range.last {
                true => out.text(&format!("           {first}"))?,
                false => out.text(&format!("           {first} to {last}: {keys}"))?,
            }
        }
        print_more(of_keyspace.len(), out)?;
    }
    Ok(())
}

fn print_lost(lost: &LostEntries, out: &mut Output) -> Result<()> {
    let entries = match lost.entries {
        Some(entries) => units::counted(entries, "entry", "entries"),
        None => "an unknown number of entries".into(),
    };
    let of = lost.keyspace.as_deref().map_or_else(
        || "an unknown keyspace".to_owned(),
        |name| format!("keyspace {}", escape(name.as_bytes())),
    );
    let whole = if lost.whole { "missing or unreadable, with " } else { "" };
    out.text(&format!("lost       {}: {whole}{entries} of {of}, among", lost.file))?;
    for range in lost.ranges.iter().take(RANGES_SHOWN) {
        out.text(&format!("           {}", range_words(range)))?;
    }
    print_more(lost.ranges.len(), out)
}

fn print_more(ranges: usize, out: &mut Output) -> Result<()> {
    match ranges.saturating_sub(RANGES_SHOWN) {
        0 => Ok(()),
        more => out.text(&format!("           and {} more", units::counted(more as u64, "range", "ranges"))),
    }
}

fn range_words(range: &LostRange) -> String {
    match (&range.from, &range.to) {
        (Bound::Unbounded, Bound::Unbounded) => "all keys".into(),
        (Bound::Included(from), Bound::Included(to)) if from == to => format!("key {}", shortened(from)),
        (from, to) => {
            let from = match from {
                Bound::Unbounded => String::new(),
                Bound::Included(key) => format!(" from {}", shortened(key)),
                Bound::Excluded(key) => format!(" after {}", shortened(key)),
            };
            let to = match to {
                Bound::Unbounded => " on".into(),
                Bound::Included(key) => format!(" up to {}", shortened(key)),
                Bound::Excluded(key) => format!(" before {}", shortened(key)),
            };
            format!("keys{from}{to}")
        }
    }
}

fn writes(lost: &LostWrites) -> String {
    let (first, last) = lost.seqnos;
    let offset = lost.offset;
    match last {
        Some(last) => {
            let count = units::counted((last + 1).saturating_sub(first), "write", "writes");
            format!("{count} at offset {offset}, sequence {first} to {last}")
        }
        None => format!("all writes from offset {offset} on, sequence {first} and later"),
    }
}

fn object(report: &RepairReport) -> Value {
    let manifest = match report.manifest {
        ManifestCondition::Whole => "whole",
        ManifestCondition::Cut => "cut",
        _ => "lost",
    };
    let keyspaces = report.keyspaces.iter().map(
        |keyspace| json!({ "name": keyspace.name, "keys": keyspace.keys, "doubtful": keyspace.is_doubtful, "as_of": keyspace.as_of,
            "expiry": serde_json::to_value(&keyspace.expiry).unwrap_or_default() }),
    );
    let writes = report.lost_writes.iter().map(|lost| {
        let (first, last) = lost.seqnos;
        json!({ "file": lost.file, "offset": lost.offset, "sequence_first": first, "sequence_last": last })
    });
    let torn = report
        .dropped
        .iter()
        .map(|tail| json!({ "file": name(&tail.file), "offset": tail.offset, "bytes": tail.bytes }));
    json!({
        "complete": report.is_complete(),
        "manifest": manifest,
        "tables": report.tables,
        "logs": report.logs,
        "keyspaces": keyspaces.collect::<Value>(),
        "doubtful": report.doubtful.iter().map(doubtful_object).collect::<Value>(),
        "lost_entries": report.lost_entries.iter().map(lost_object).collect::<Value>(),
        "lost_writes": writes.collect::<Value>(),
        "torn": torn.collect::<Value>(),
        "left_out": report.left_out.iter().map(|file| json!({ "file": file.name, "why": file.why })).collect::<Value>(),
        "damage": report.damage.iter().map(message).collect::<Value>(),
    })
}

fn doubtful_object(range: &DoubtfulKeys) -> Value {
    let mut object = Object::new();
    object.insert("keyspace".into(), range.keyspace.clone().into());
    object.insert("into".into(), range.into.clone().into());
    object.insert("keys".into(), range.keys.into());
    put_bytes(&mut object, "first_key", &range.first);
    put_bytes(&mut object, "last_key", &range.last);
    object.into()
}

fn lost_object(lost: &LostEntries) -> Value {
    let ranges = lost.ranges.iter().map(|range| {
        let mut object = Object::new();
        for (bound, [included, excluded]) in
            [(&range.from, ["from_key", "after_key"]), (&range.to, ["to_key", "before_key"])]
        {
            match bound {
                Bound::Unbounded => {}
                Bound::Included(key) => put_bytes(&mut object, included, key),
                Bound::Excluded(key) => put_bytes(&mut object, excluded, key),
            }
        }
        Value::Object(object)
    });
    json!({
        "file": lost.file,
        "keyspace": lost.keyspace,
        "entries": lost.entries,
        "whole_file": lost.whole,
        "ranges": ranges.collect::<Value>(),
    })
}
