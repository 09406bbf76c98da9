//! What a person sees at the end: one screen, eighty columns, plain text.

use std::fmt::Write as _;
use std::path::Path;

use super::measure::{Measured, Pass};
use super::run::{Findings, Pair};
use crate::escape::escape;
use crate::store::DEFAULT_KEYSPACE;
use crate::units;

/// Width of a line's label, and of each of the two columns of figures.
const LABEL: usize = 44;
const COLUMN: usize = 16;

/// The whole report.
pub(super) fn report(findings: &Findings) -> String {
    let mut out = String::new();
    heading(&mut out, findings);
    table(&mut out, findings);
    conclusion(&mut out, findings);
    what_next(&mut out, findings);
    out
}

/// A line of the report. Writing to a string cannot fail.
fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", text.trim_end());
}

fn heading(out: &mut String, findings: &Findings) {
    let Findings { source, load_time, seed, .. } = findings;
    let keys = source.records.len() as u64;
    line(
        out,
        &format!("SieveDB demo: {} {}, and as many that do not exist", units::count(keys), source.what),
    );
    if let Some(left_out) = &source.left_out {
        line(out, &format!("  (not all of them: {left_out})"));
    }
    line(out, "");
    line(
        out,
        &format!(
            "Loaded {} of keys and values in random order (seed {seed}) in {}:",
            units::bytes(source.bytes as u64),
            units::seconds(*load_time)
        ),
    );
    let rate = units::per_second(keys, *load_time);
    line(out, &format!("{rate} keys a second, with every flush and compaction on the way."));
    line(out, "");
}

fn table(out: &mut String, findings: &Findings) {
    let mut row = |label: &str, figure: &dyn Fn(&Pair) -> String| {
        let (loaded, compacted) = (figure(&findings.loaded), figure(&findings.compacted));
        line(out, &format!("{label:<LABEL$}{loaded:>COLUMN$}{compacted:>COLUMN$}"));
    };
    let with = |figure: fn(&Measured) -> String| move |pair: &Pair| figure(&pair.with);
    let without = |figure: fn(&Measured) -> String| move |pair: &Pair| figure(&pair.without);

    row("", &|pair| {
        if std::ptr::eq(pair, &findings.loaded) { "as loaded".into() } else { "compacted".into() }
    });
    row("levels / sorted runs / tables", &with(shape));
    row("table files on disk", &with(|found| units::bytes(found.total.bytes)));
    row("filters in memory", &with(|found| units::bytes(found.filter_memory_bytes)));
    row("filter bits per key", &with(bits_per_key));
    row("", &|_| String::new());
    row("Absent keys", &|_| String::new());
    row("  answered without touching a data block", &with(from_memory));
    row(
        "  false positives, of all filters asked",
        &with(|found| rate(found.absent.filter.false_positive_rate())),
    );
    row("  false positives, predicted", &with(|found| rate(found.absent.predicted_rate)));
    row("  data blocks per lookup", &with(|found| blocks(&found.absent)));
    row("  data blocks per lookup, filters off", &without(|found| blocks(&found.absent)));
    row("  lookups per second", &with(|found| speed(&found.absent)));
    row("  lookups per second, filters off", &without(|found| speed(&found.absent)));
    row("", &|_| String::new());
    row("Present keys", &|_| String::new());
    row("  data blocks per lookup", &with(|found| blocks(&found.present)));
    row("  data blocks per lookup, filters off", &without(|found| blocks(&found.present)));
    row("  lookups per second", &with(|found| speed(&found.present)));
    row("  lookups per second, filters off", &without(|found| speed(&found.present)));
}

fn shape(found: &Measured) -> String {
    format!("{} / {} / {}", found.levels, found.total.runs, found.total.tables)
}

fn bits_per_key(found: &Measured) -> String {
    found.total.filter_bits_per_key().map_or_else(|| "-".into(), |bits| format!("{bits:.2}"))
}

fn from_memory(found: &Measured) -> String {
    units::percent(found.from_memory as f64 / found.absent.lookups.max(1) as f64)
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), units::percent)
}

fn blocks(pass: &Pass) -> String {
    format!("{:.3}", pass.blocks_per_lookup())
}

fn speed(pass: &Pass) -> String {
    units::per_second(pass.lookups, pass.time)
}

fn conclusion(out: &mut String, findings: &Findings) {
    let Pair { with, without } = &findings.loaded;
    let lookups = units::count(with.absent.lookups);
    let (few, many) = (units::count(with.absent.blocks), units::count(without.absent.blocks));
    line(out, "");
    line(out, &format!("As loaded, {lookups} absent lookups touched {few} data blocks, or {many} in a"));
    line(out, "copy without filters (dropped by now). One thread, all blocks in the cache: on a");
    line(out, "disk each block touched would be a read.");
}

fn what_next(out: &mut String, findings: &Findings) {
    let Findings { dir, source, deleted, .. } = findings;
    line(out, "");
    line(out, &format!("The store is kept in {} ({}).", dir.display(), units::bytes(findings.disk_bytes)));
    if *deleted > 0 {
        let entries = units::counted(*deleted, "entry", "entries");
        line(out, &format!("{entries} of an earlier run were deleted from it first."));
    }
    line(out, "Try next:");
    let keyspace = match findings.keyspace.as_str() {
        DEFAULT_KEYSPACE => String::new(),
        name => format!(" --keyspace {}", quoted(name)),
    };
    let mut command = |name: &str, rest: &str| {
        line(out, &format!("  {} {name} {}{keyspace}{rest}", program(), quoted(&dir.to_string_lossy())));
    };
    let present = &source.records[findings.example].key;
    command("get", &argument(present));
    command("get", &argument(&findings.absent_key));
    command("scan", " --reverse --limit 5");
    command("stats", "");
}

/// How this program was called.
fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_else(|| "sievedb".into());
    quoted(&Path::new(&name).to_string_lossy())
}

/// A key as the last argument of a command.
fn argument(key: &[u8]) -> String {
    let plain = std::str::from_utf8(key).is_ok_and(|key| !key.chars().any(char::is_control));
    match key {
        b"-" => " --escaped '\\x2d'".into(),
        key if plain => format!(
            "{} {}",
            if key.starts_with(b"-") { " --" } else { "" },
            quoted(&String::from_utf8_lossy(key))
        ),
        key => format!(" --escaped {}", quoted(&escape(key))),
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@%,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    if cfg!(windows) { format!("\"{word}\"") } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
