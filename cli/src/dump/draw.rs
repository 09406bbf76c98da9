//! Draws a store: a line for each run, `[===]` for a table from its smallest to its largest key. Positions follow the order of
//! all bounds, so overlaps are visible for any distribution.

use sievedb::TimeSource;
use sievedb::inspect::tree::{
    BucketShape, ExpiryShape, FilterShape, KeyspaceShape, OriginShape, RunShape, TableShape, Tree,
};

use super::layout::{fit, flow, width};
use crate::escape::escape;
use crate::units::{bytes, count, counted, share};
use crate::window::{length, moment};

const LISTED_MAX: usize = 40;

const TABLE_INDENT: usize = 7;

const PART_INDENT: usize = 14;

pub(super) fn draw(tree: &Tree, all: bool, columns: usize) -> Vec<String> {
    let most = if all { usize::MAX } else { LISTED_MAX };
    let manifest = tree.manifest.file_name().unwrap_or_default().to_string_lossy();
    let manifest = if manifest == "CURRENT" { "missing" } else { &manifest };
    let mut lines = labelled("manifest", manifest, columns);
    lines.extend(labelled("logs", &logs(tree, most), columns));
    for keyspace in &tree.keyspaces {
        lines.push(String::new());
        draw_keyspace(&mut lines, keyspace, most, columns);
    }
    if tree.keyspaces.is_empty() {
        lines.extend([String::new(), "keyspace   none can be read".into()]);
    }
    if !tree.unplaced.is_empty() {
        lines.extend([String::new(), "tables not in the manifest".into()]);
        list(&mut lines, tree.unplaced.iter().map(|table| ("-".to_owned(), table)), most, columns);
    }
    if let Some(reserve) = tree.reserve {
        lines.push(String::new());
        lines.extend(labelled("RESERVE", &format!("{}, kept free for a full disk", bytes(reserve)), columns));
    }
    lines
}

fn labelled(label: &str, text: &str, columns: usize) -> Vec<String> {
    flow(&format!("{label:<11}"), 11, text, columns)
}

fn logs(tree: &Tree, most: usize) -> String {
    let log = |(number, len): &(u64, Option<u64>)| {
        format!("{number:06}.wal {}", len.map_or("missing".into(), bytes))
    };
    let mut logs: Vec<String> = tree.logs.iter().take(most).map(log).collect();
    if tree.logs.len() > most {
        logs.push(format!("and {} more; --all lists them", count((tree.logs.len() - most) as u64)));
    }
    if logs.is_empty() { "none".into() } else { logs.join(", ") }
}

fn draw_keyspace(lines: &mut Vec<String>, keyspace: &KeyspaceShape, most: usize, columns: usize) {
    let runs = &keyspace.runs;
    lines.push(format!("keyspace   {}", fit(keyspace.name.as_bytes(), columns - 11)));
    if let Some(expiry) = &keyspace.expiry {
        lines.extend(labelled("expiry", &describe_expiry(expiry), columns));
    }
    let source = keyspace.expiry.as_ref().map_or(TimeSource::System, |expiry| expiry.time_source);
    if runs.is_empty() {
        lines.push("           no tables".into());
        return;
    }
    let tables: Vec<&TableShape> = runs.iter().flat_map(|run| &run.tables).collect();
    let scale = Scale::of(&tables, columns);
    for run in runs {
        lines.push(String::new());
        lines.extend(run_lines(run, columns));
        if let Some(bucket) = &run.bucket {
            lines.extend(flow("  ", 2, &describe_bucket(bucket, source), columns));
        }
        lines.push(scale.line(&run.tables));
    }
    lines.push(String::new());
    let of_run = |run: &RunShape, table| (run.level.to_string(), table);
    let tables = runs.iter().flat_map(|run| run.tables.iter().map(move |table| of_run(run, table)));
    list(lines, tables, most, columns);
}

fn describe_expiry(expiry: &ExpiryShape) -> String {
    let ttl = match expiry.ttl {
        Some(ttl) => format!("after {}, in {} buckets", length(ttl), expiry.buckets),
        None => "not any more".into(),
    };
    let next = match expiry.next_expiry {
        Some(time) => format!("; next expiry {}", moment(Some(time), expiry.time_source)),
        None => String::new(),
    };
    format!("{ttl}; hidden below sequence number {}{next}", expiry.horizon)
}

fn describe_bucket(bucket: &BucketShape, source: TimeSource) -> String {
    let [begins, ends, expires] =
        [bucket.begins, bucket.ends, bucket.expires].map(|time| moment(time, source));
    let hidden = if bucket.is_hidden { ", hidden" } else { "" };
    format!("bucket from {begins} to {ends}, expires {expires}{hidden}")
}

fn run_lines(run: &RunShape, columns: usize) -> Vec<String> {
    let name =
        if run.level == 0 { format!("level 0, run {}", run.run) } else { format!("level {}", run.level) };
    let filter = match run.filter_bytes() {
        0 => "no filters".to_owned(),
        size => {
            let bits = 8.0 * size as f64 / run.keys().max(1) as f64;
            format!("filters {bits:.1} bits per key, rate {}", share(run.rate()))
        }
    };
    let tables = counted(run.tables.len() as u64, "table", "tables");
    let size = format!("{name}: {tables}, {}, {}", counted(run.keys(), "key", "keys"), bytes(run.bytes()));
    match format!("{size}; {filter}") {
        line if width(&line) <= columns => vec![line],
        _ => [flow("", 2, &size, columns), flow("  ", 2, &filter, columns)].concat(),
    }
}

struct Scale<'t> {
    bounds: Vec<&'t [u8]>,
    width: usize,
}

impl<'t> Scale<'t> {
    fn of(tables: &[&'t TableShape], width: usize) -> Self {
        let mut bounds: Vec<&[u8]> =
            tables.iter().flat_map(|table| [&table.smallest[..], &table.largest]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self { bounds, width }
    }

    fn column(&self, key: &[u8]) -> usize {
        let order = self.bounds.partition_point(|bound| *bound < key);
        order * (self.width - 1) / (self.bounds.len() - 1).max(1)
    }

    fn line(&self, tables: &[TableShape]) -> String {
        let mut line = vec![b' '; self.width];
        for table in tables {
            let (from, to) = (self.column(&table.smallest), self.column(&table.largest));
            if from == to || line[from] != b' ' {
                line[from..=to].fill(b'|');
                continue;
            }
            line[from..=to].fill(b'=');
            (line[from], line[to]) = (b'[', b']');
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

fn list<'t>(
    lines: &mut Vec<String>,
    mut tables: impl Iterator<Item = (String, &'t TableShape)>,
    most: usize,
    columns: usize,
) {
    let heading = "level   table        keys        size  filter";
    let narrow = heading.trim_end_matches("  filter");
    lines.push(if heading.len() <= columns { heading } else { narrow }.into());
    tables.by_ref().take(most).for_each(|(level, table)| list_table(lines, &level, table, columns));
    let more = tables.count() as u64;
    if more > 0 {
        let more = counted(more, "more table", "more tables");
        let indent = " ".repeat(TABLE_INDENT);
        lines.extend(flow(&indent, TABLE_INDENT, &format!("and {more}; --all lists them"), columns));
    }
}

fn list_table(lines: &mut Vec<String>, level: &str, table: &TableShape, columns: usize) {
    let (number, keys, size) = (table.number, count(table.keys), bytes(table.bytes));
    let row = format!("{level:>5}  {number:06} {keys:>11}  {size:>10}");
    let filter = describe_filters(table);
    let indent = " ".repeat(PART_INDENT);
    if row.len() + 2 + filter.len() <= columns {
        lines.push(format!("{row}  {filter}"));
    } else if row.len() <= columns {
        lines.push(row);
        lines.extend(flow(&indent, PART_INDENT, &filter, columns));
    } else {
        let row = format!("{number:06}: {}, {size}", counted(table.keys, "key", "keys"));
        lines.extend(flow(&format!("{level:>5}  "), TABLE_INDENT, &row, columns));
        lines.extend(flow(&indent, PART_INDENT, &filter, columns));
    }
    let room = columns.saturating_sub(PART_INDENT + " to ".len()) / 2;
    lines.push(format!("{indent}{} to {}", fit(&table.smallest, room), fit(&table.largest, room)));
    if table.spans > 0 {
        lines.extend(flow(
            &indent,
            PART_INDENT,
            &counted(table.spans, "deleted range", "deleted ranges"),
            columns,
        ));
    }
    if let Some(origin) = &table.origin {
        lines.extend(flow(&indent, PART_INDENT, &describe_origin(origin), columns));
    }
}

fn describe_origin(origin: &OriginShape) -> String {
    let keyspace = format!("of keyspace {}", escape(origin.name.as_bytes()));
    match origin.replaced.len() {
        0 => keyspace,
        more @ 9.. => format!("{keyspace}, replaced {}", counted(more as u64, "table", "tables")),
        _ => {
            let numbers: Vec<_> = origin.replaced.iter().map(|number| format!("{number:06}")).collect();
            format!("{keyspace}, replaced {}", numbers.join(" "))
        }
    }
}

fn describe_filters(table: &TableShape) -> String {
    let describe = |filter: &FilterShape| {
        let beside = filter.file.map_or(String::new(), |number| format!(", in {number:06}.filter"));
        match filter.found {
            Some((kind, rate)) => {
                let bits = 8.0 * filter.bytes as f64 / table.keys.max(1) as f64;
                format!("{kind}, {bits:.1} bits/key, {}{beside}", share(rate))
            }
            None => format!("cannot be used{beside}"),
        }
    };
    match &table.filters[..] {
        [] => "none".into(),
        filters => filters.iter().map(describe).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sievedb::fs::StdFs;

    fn store() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let small = sievedb::KeyspaceOptions::new()
            .memtable_bytes(64 << 10)
            .table_bytes(64 << 10)
            .level_base_bytes(64 << 10)
            .level_ratio(4)
            .compression(sievedb::Compression::None);
        let options = sievedb::Options::new().background_threads(0).default_keyspace(small);
        let db = options.open(dir.path()).unwrap();
        for n in 0..10_000u64 {
            db.put(format!("key{:06}", n * 7919 % 10_000), [b'v'; 20]).unwrap();
            while n.is_multiple_of(500) && db.step().unwrap() {}
        }
        db.flush().unwrap();
        db.close().unwrap();
        Tree::read(&StdFs, dir.path()).unwrap()
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let plain = store();
        let runs = plain.keyspaces[0].runs.len();
        assert!(runs >= 3, "{plain:?}");
        let mut long = plain.clone();
        long.logs = (0..200).map(|log| (log * log, (log % 7 > 0).then_some(1 << (log / 4)))).collect();
        long.keyspaces.push(long.keyspaces[0].clone());
        long.keyspaces[0].name = "\u{fc}\n".repeat(80);
        long.keyspaces[1].name = "a name, of words: and signs; ".repeat(9);
        for (at, run) in long.keyspaces[0].runs.iter_mut().enumerate() {
            for table in &mut run.tables {
                (table.number, table.keys) = (table.number << (9 * at), u64::MAX >> (9 * at + 3));
                (table.bytes, table.smallest) = (table.keys, vec![7; 200]);
                table.filters[0].file = Some(table.number);
                table.filters.extend(table.filters.clone());
                table.filters[1].found = None;
            }
        }
        long.keyspaces[1].runs[0].tables[0].filters.clear();
        long.keyspaces[1].runs[0].tables.truncate(1);
        long.keyspaces[1].runs[0].tables[0].keys = 1;
        for columns in [40, 41, 60, 80, 132, 300] {
            for (tree, all) in [(&plain, false), (&long, false), (&long, true)] {
                let lines = draw(tree, all, columns);
                let longest = lines.iter().max_by_key(|line| width(line)).unwrap();
                assert!(width(longest) <= columns, "{columns}: {longest}\n{}", lines.join("\n"));
                assert!(!lines.iter().any(|line| line.contains(char::is_control)));
                let drawn = lines.iter().filter(|line| line.trim_start().starts_with(['[', '|'])).count();
                assert_eq!(drawn, runs * tree.keyspaces.len(), "{}", lines.join("\n"));
                let text = lines.join(" ");
                assert!(!text.contains(" 1 keys"), "{text}");
                assert_eq!(text.contains("--all lists them"), tree.logs.len() > 40 && !all, "{text}");
            }
        }
        assert_eq!(draw(&long, true, 40).iter().filter(|line| line.contains(".wal ")).count(), 200);
    }
}
