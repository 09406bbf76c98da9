//! The report on one screen of 80 columns, or as an object.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::findings::{Findings, Pair};
use super::measure::{Measured, Pass};
use crate::escape::{escape, quoted};
use crate::store::DEFAULT_KEYSPACE;
use crate::units;

const LABEL: usize = 44;
const COLUMN: usize = 16;

const DUMP: &str = "sievedb-dump";
const DUMP_FILE: &str = if cfg!(windows) { "sievedb-dump.exe" } else { DUMP };

const BAR: u64 = 40;

pub(super) fn report(findings: &Findings) -> String {
    let mut out = String::new();
    result(&mut out, findings);
    input(&mut out, findings);
    table(&mut out, findings);
    conditions(&mut out);
    what_next(&mut out, findings);
    out
}

pub(super) fn object(findings: &Findings) -> Json {
    let pair = |pair: &Pair| json!({ "with_filters": measured(&pair.with), "without_filters": measured(&pair.without) });
    json!({
        "store": findings.dir.to_string_lossy(),
        "keyspace": findings.keyspace,
        "keys": findings.source.records.len(),
        "key_and_value_bytes": findings.source.bytes,
        "left_out": findings.source.left_out,
        "deleted": findings.deleted,
        "seed": findings.seed,
        "load_seconds": findings.load_time.as_secs_f64(),
        "as_loaded": pair(&findings.loaded),
        "compacted": pair(&findings.compacted),
        "disk_bytes": findings.disk_bytes,
        "page": findings.page.as_ref().map(|page| page.to_string_lossy()),
    })
}

fn measured(found: &Measured) -> Json {
    let pass = |pass: &Pass| {
        json!({
            "lookups": pass.lookups,
            "seconds": pass.time.as_secs_f64(),
            "data_blocks": pass.blocks,
            "data_blocks_per_lookup": pass.blocks_per_lookup(),
        })
    };
    let mut absent = pass(&found.absent);
    absent["answered_from_memory"] = json!(found.from_memory);
    absent["false_positive_rate"] = json!(found.absent.filter.false_positive_rate());
    absent["predicted_rate"] = json!(found.absent.predicted_rate);
    json!({
        "levels": found.levels,
        "runs": found.total.runs,
        "tables": found.total.tables,
        "table_bytes": found.total.bytes,
        "filter_memory_bytes": found.filter_memory_bytes,
        "filter_bits_per_key": found.total.filter_bits_per_key(),
        "absent": absent,
        "present": pass(&found.present),
    })
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", text.trim_end());
}

fn result(out: &mut String, findings: &Findings) {
    let Pair { with, without } = &findings.loaded;
    let (few, many) = (with.absent.blocks, without.absent.blocks);
    let lookups = units::counted(with.absent.lookups, "absent key", "absent keys");
    let blocks = units::counted(few, "block read", "block reads");
    line(out, &format!("{lookups} cost {blocks} with filters, {} without.", units::count(many)));
    line(out, "");
    for (name, blocks) in [("with filters", few), ("without filters", many)] {
        let bar = bar(blocks, few.max(many));
        line(
            out,
            &format!("  {name:<17}{bar:<width$}{:>14}", units::count(blocks), width = BAR as usize + 2),
        );
    }
    line(out, "");
}

fn bar(number: u64, most: u64) -> String {
    let columns = (number as f64 * BAR as f64 / most.max(1) as f64).round() as usize;
    match columns {
        0 if number > 0 => "|".into(),
        columns => "#".repeat(columns),
    }
}

fn input(out: &mut String, findings: &Findings) {
    let Findings { source, load_time, seed, .. } = findings;
    let keys = source.records.len() as u64;
    line(out, &format!("Keys: {} {}, and as many that do not exist.", units::count(keys), source.what));
    if let Some(left_out) = &source.left_out {
        line(out, &format!("Not all of them: {left_out}."));
    }
    let (bytes, time) = (units::bytes(source.bytes as u64), units::seconds(*load_time));
    let rate = units::per_second(keys, *load_time);
    line(out, &format!("Loaded {bytes} of keys and values in random order (seed {seed}) in {time},"));
    line(out, &format!("flushes and compactions included: {rate} keys a second."));
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
    row("  answered without reading a data block", &with(from_memory));
    row(
        "  false positives, of all filters probed",
        &with(|found| rate(found.absent.filter.false_positive_rate())),
    );
    row("  false positives, predicted", &with(|found| rate(found.absent.predicted_rate)));
    row("  data blocks read per lookup", &with(|found| blocks(&found.absent)));
    row("  data blocks read per lookup, no filters", &without(|found| blocks(&found.absent)));
    row("  lookups per second", &with(|found| speed(&found.absent)));
    row("  lookups per second, no filters", &without(|found| speed(&found.absent)));
    row("", &|_| String::new());
    row("Present keys", &|_| String::new());
    row("  data blocks read per lookup", &with(|found| blocks(&found.present)));
    row("  data blocks read per lookup, no filters", &without(|found| blocks(&found.present)));
    row("  lookups per second", &with(|found| speed(&found.present)));
    row("  lookups per second, no filters", &without(|found| speed(&found.present)));
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
    format!("{:.4}", pass.blocks_per_lookup())
}

fn speed(pass: &Pass) -> String {
    units::per_second(pass.lookups, pass.time)
}

fn conditions(out: &mut String) {
    line(out, "");
    line(out, "Default options, one thread, all blocks cached: a block counts as read from the");
    line(out, "cache or from a file. The copy without filters is deleted again.");
}

fn what_next(out: &mut String, findings: &Findings) {
    let Findings { dir, source, deleted, .. } = findings;
    let size = units::bytes(findings.disk_bytes);
    let page = findings.page.as_ref();
    let page = page.map_or_else(String::new, |page| format!(", a page about it in {}", page.display()));
    line(out, &format!("The store is kept in {} ({size}){page}.", dir.display()));
    if *deleted > 0 {
        let entries = units::counted(*deleted, "entry", "entries");
        line(out, &format!("{entries} of an earlier demo were deleted from it first."));
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
    if let Some(table) = &findings.table {
        let is_installed = std::env::current_exe().is_ok_and(|exe| exe.with_file_name(DUMP_FILE).exists());
        line(
            out,
            &format!("  {} {}", dump_program(&called(), is_installed), quoted(&table.to_string_lossy())),
        );
    }
}

fn called() -> PathBuf {
    std::env::args_os().next().unwrap_or_else(|| "sievedb".into()).into()
}

fn program() -> String {
    quoted(&called().to_string_lossy())
}

/// The command for `sievedb-dump`: the file next to the `called` program, or `cargo run`, because `cargo run -- demo` does
/// not build it.
fn dump_program(called: &Path, is_installed: bool) -> String {
    match is_installed {
        true => quoted(&called.with_file_name(DUMP).to_string_lossy()),
        false => format!("cargo run --release --bin {DUMP} --"),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_a_small_number_is_not_drawn_as_none() {
        assert_eq!(
            [(0, 0), (0, 9), (1, 1000), (500, 1000)].map(|(number, most)| bar(number, most).len()),
            [0, 0, 1, 20]
        );
        assert_eq!((bar(1, 1000), bar(1000, 1000)), ("|".into(), "#".repeat(40)));
    }

    #[test]
    fn the_dump_program_is_built_first_unless_it_is_installed_next_to_this_one() {
        let called = Path::new("target/release/sievedb");
        assert_eq!(dump_program(called, true), "target/release/sievedb-dump");
        assert_eq!(dump_program(Path::new("sievedb"), true), "sievedb-dump");
        assert_eq!(dump_program(called, false), "cargo run --release --bin sievedb-dump --");
    }
}
