//! `sievedb-dump`: every kind of file, intact and damaged, as text and as JSON.

use std::path::{Path, PathBuf};

use crate::tool::{Outcome, TempStore, dump_command, run, temp_store};

const KEYS: usize = 3000;

pub(crate) fn dump(args: &[&str]) -> Outcome {
    let output = dump_command(args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).expect("messages are text");
    Outcome { code: output.status.code(), stdout: output.stdout, stderr }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn filled_store() -> TempStore {
    let store = temp_store();
    let lines: String = (0..KEYS).map(|n| format!("key{n:05}\tthe value of number {n}\n")).collect();
    store.load(lines.as_bytes());
    run(&["compact", &store.db]).ok();
    run(&["put", &store.db, "logged", "not in a table"]).ok();
    store
}

fn only(store: &TempStore, ending: &str) -> PathBuf {
    let mut paths = store.paths_of(ending);
    assert_eq!(paths.len(), 1, "{ending}: {paths:?}");
    paths.remove(0)
}

fn table(store: &TempStore) -> PathBuf {
    only(store, ".sst")
}

#[track_caller]
fn names_the_damage(outcome: &Outcome, path: &Path) -> u64 {
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    let claim = format!("{} is corrupt at offset ", path.display());
    let (_, rest) = outcome.stderr.split_once(&claim).unwrap_or_else(|| panic!("{}", outcome.stderr));
    rest.split(':').next().unwrap().parse().unwrap()
}

#[test]
fn every_file_of_a_store_is_named_accounted_for_and_left_as_it_was() {
    let store = filled_store();
    let before = store.files();
    for (name, bytes) in &before {
        let path = Path::new(&store.db).join(name);
        let out = dump(&[text(&path)]).ok();
        let kind = match name.as_str() {
            "LOCK" => "LOCK",
            "CURRENT" => "CURRENT",
            "RESERVE" => "RESERVE",
            name if name.ends_with(".sst") => "table",
            name if name.ends_with(".wal") => "write-ahead log",
            name if name.starts_with("MANIFEST") => "manifest",
            other => panic!("{other}"),
        };
        let heading = out.lines().next().unwrap();
        assert!(heading.starts_with(&format!("{}: {kind}, ", path.display())), "{heading}");
        let verdict = out.lines().last().unwrap();
        assert!(verdict.starts_with("intact: all "), "{name}: {verdict}");
        let all = dump(&["--all", text(&path)]).ok();
        let shows_little = bytes.len() < 100 || kind == "RESERVE";
        assert!(all.len() >= out.len() && shows_little || all.len() > bytes.len(), "{name}");
        // For any size of the file.
        assert!(out.lines().count() < 150, "{name}: {} lines", out.lines().count());
    }
    assert!(store.files() == before, "looking changed the store");
}

#[test]
fn a_store_in_use_can_be_looked_at() {
    let store = filled_store();
    let db = sievedb::Db::open(&store.db).unwrap();
    db.put("more", "of it").unwrap();
    dump(&[text(&table(&store))]).ok();
    dump(&["tree", &store.db]).ok();
    for log in store.paths_of(".wal") {
        dump(&[text(&log)]).ok();
    }
}

#[test]
fn keys_and_values_are_printed_as_by_scan() {
    let store = filled_store();
    let table = table(&store);
    let values = dump(&["--values", text(&table)]).ok();
    let columns = |line: &str| line.split('\t').skip(2).map(str::to_owned).collect::<Vec<_>>().join("\t");
    let found: Vec<String> = values.lines().map(columns).collect();
    let scanned = run(&["scan", &store.db, "--prefix", "key"]).ok();
    assert_eq!(found, scanned.lines().collect::<Vec<_>>());
    let keys = dump(&["--keys", text(&table)]).ok();
    assert!(keys.lines().next().unwrap().ends_with("\tput\tkey00000"), "{}", &keys[..100]);
    assert_eq!(keys.lines().count(), KEYS);
}

#[test]
fn one_block_is_shown_and_a_number_too_high_is_a_usage_error() {
    let store = filled_store();
    let table = table(&store);
    let block = dump(&["--block", "1", text(&table)]).ok();
    assert!(
        block.contains("block 1, data") && !block.contains("block 0") && !block.contains("block 2"),
        "{block}"
    );
    let wrong = dump(&["--block", "99999", text(&table)]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("has no block 99999: it has "), "{wrong:?}");
}

#[test]
fn json_is_an_object_a_line_and_ends_with_the_verdict() {
    let store = filled_store();
    for name in store.files().keys() {
        let path = Path::new(&store.db).join(name);
        let out = dump(&["--json", "--all", text(&path)]).ok();
        let events: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(events[0]["event"], "begin");
        let end = events.last().unwrap();
        assert_eq!((&end["event"], &end["intact"]), (&"end".into(), &true.into()), "{name}");
        assert_eq!(end["accounted"], events[0]["length"], "{name}");
    }
    let tables = dump(&["tree", "--json", &store.db]).ok();
    let table: serde_json::Value = serde_json::from_str(tables.lines().next().unwrap()).unwrap();
    assert_eq!((&table["keys"], &table["smallest"]), (&KEYS.into(), &"key00000".into()));
}

#[test]
fn files_that_cannot_be_shown_are_refused_with_the_right_exit_code() {
    let store = filled_store();
    let folder = store.folder.path();
    let (empty, noise) = (folder.join("empty"), folder.join("noise"));
    std::fs::write(&empty, b"").unwrap();
    std::fs::write(&noise, (0..5000u32).map(|n| ((n * n) >> 3) as u8).collect::<Vec<_>>()).unwrap();
    let missing = folder.join("missing");
    let (current, lock) = (Path::new(&store.db).join("CURRENT"), Path::new(&store.db).join("LOCK"));
    let table = table(&store);
    for (args, code, message) in [
        (vec![text(&missing)], 3, "cannot open "),
        (vec!["--keys", store.db.as_str()], 2, "is a directory: only --all and --json apply to it"),
        (vec!["filter", "show", store.db.as_str()], 2, "is a directory; `sievedb-dump tree` shows a store"),
        (vec![text(&empty)], 3, "is not a file of a store: it is empty, and not called LOCK"),
        (
            vec![text(&noise)],
            3,
            "is not a file of a store: it begins with 00 00 00 01 02 03 04 06 (\\x00\\x00\\x00",
        ),
        (vec!["tree", text(&missing)], 3, "missing: no such directory"),
        (vec!["tree", text(&noise)], 3, "noise: it is a file, not a directory"),
        (vec!["tree", text(folder)], 3, "neither a CURRENT nor a manifest"),
        (vec!["--keys", text(&current)], 2, "is a CURRENT and has no keys"),
        (vec!["--block", "0", text(&current)], 2, "is a CURRENT and has no blocks"),
        (vec!["--block", "0", text(&lock)], 2, "is a LOCK and has no blocks"),
        (vec!["filter", "show", text(&noise)], 3, "is not a file of a store: "),
        (vec!["filter", "show", text(&lock)], 2, "LOCK is a LOCK, not a filter"),
        (vec!["filter", "show", text(&current)], 2, "CURRENT is a CURRENT, not a filter"),
        (vec!["filter", "verify", text(&noise)], 2, "noise is not a table"),
        (vec!["filter", "verify", text(&current)], 2, "CURRENT is a CURRENT, not a table"),
        (vec!["filter", "verify", "--table", text(&noise), text(&table)], 2, "noise is not a table"),
        (vec!["filter", "verify", "--table", text(&table), text(&noise)], 2, "noise is not a filter"),
        (
            vec!["filter", "measure", "--table", text(&table), text(&table)],
            2,
            ".sst is a table: its own filter ",
        ),
    ] {
        let outcome = dump(&args);
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(code), 0), "{args:?}: {outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{args:?}: {outcome:?}");
        assert!(outcome.stderr.contains(message), "{args:?}: {outcome:?}");
    }
    let both = dump(&["--summary", text(&missing), text(&table)]);
    assert_eq!(both.code, Some(3));
    assert!(String::from_utf8(both.stdout).unwrap().contains("intact as far as it was read"));
}

#[cfg(unix)]
#[test]
fn a_file_without_read_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let store = filled_store();
    let table = table(&store);
    std::fs::set_permissions(&table, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&table).is_err() {
        let outcome = dump(&[text(&table)]);
        assert!(outcome.fails(3).contains("cannot open "));
    }
}

#[test]
fn a_file_cut_anywhere_is_shown_up_to_the_cut_and_the_offset_is_named() {
    let store = filled_store();
    let current = Path::new(&store.db).join("CURRENT");
    let cut = store.folder.path().join("cut");
    for (path, step) in [(current, 7), (table(&store), 9001)] {
        let good = std::fs::read(&path).unwrap();
        for len in (0..good.len()).step_by(step) {
            std::fs::write(&cut, &good[..len]).unwrap();
            let outcome = dump(&[text(&cut)]);
            if len < 8 {
                assert!(outcome.fails(3).contains("cut is not a file of a store: it is "));
                continue;
            }
            assert!(names_the_damage(&outcome, &cut) <= len as u64, "{len}: {outcome:?}");
            assert!(!outcome.stdout.is_empty());
        }
    }
}

#[test]
fn a_damaged_block_is_named_and_the_blocks_after_it_are_shown() {
    let store = filled_store();
    let table = table(&store);
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&table, &bytes).unwrap();
    let outcome = dump(&["--blocks", text(&table)]);
    assert!((64..200).contains(&names_the_damage(&outcome, &table)));
    let out = String::from_utf8(outcome.stdout).unwrap();
    assert!(out.contains("! damaged at ") && out.contains("block 1, data"), "{out}");
    assert!(out.lines().last().unwrap().starts_with("not intact: 1 place; "), "{out}");
    let keys = dump(&["--keys", text(&table)]);
    assert_eq!(keys.code, Some(3));
    assert!(String::from_utf8(keys.stdout).unwrap().lines().count() > KEYS / 2);
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_dump_quietly() {
    let store = filled_store();
    let table = table(&store);
    let mut child = dump_command(&["--all", text(&table)]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn a_filter_is_shown_verified_and_measured() {
    let store = filled_store();
    let table = table(&store);
    let shown = dump(&["filter", "show", text(&table)]).ok();
    for part in
        ["bits per key", "log2(1/rate)", "section 0", "page checksums 0", "seed                  secret"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Fields of zeros are shown only on request.
    let kind = shown.lines().nth(2).unwrap();
    assert!(
        kind.starts_with("  kind  ") && shown.find("\n\noffset  bytes") > shown.find("log2(1/rate)"),
        "{shown}"
    );
    assert!(
        !shown.contains("section 4 offset") && shown.contains("empty fields are not shown; --all"),
        "{shown}"
    );
    let all = dump(&["filter", "show", "--all", text(&table)]).ok();
    assert!(all.contains("section 4 offset") && !all.contains("not shown"), "{all}");
    assert!(all.lines().count() > shown.lines().count() + 5);
    let verified = dump(&["filter", "verify", text(&table)]).ok();
    assert!(
        verified.contains("keys probed               3,000")
            && verified.contains("denied                        0"),
        "{verified}"
    );
    let measured = dump(&["filter", "measure", "--probes", "200000", text(&table)]).ok();
    assert_eq!(measured.matches("as predicted").count(), 2, "{measured}");
    assert_eq!(measured, dump(&["filter", "measure", "--probes", "200000", text(&table)]).ok());

    let bytes = std::fs::read(&table).unwrap();
    let is_filter = |at: &usize| bytes[*at..].starts_with(b"\x89SVFLT\r\n");
    let start = (4096..bytes.len()).step_by(4096).find(is_filter).expect("the table has a filter block");
    let len = u64::from_le_bytes(bytes[start + 32..start + 40].try_into().unwrap()) as usize;
    let alone = store.folder.path().join("filter");
    std::fs::write(&alone, &bytes[start..start + len]).unwrap();
    assert!(dump(&[text(&alone)]).ok().contains("filter block, "));
    dump(&["filter", "verify", "--table", text(&table), text(&alone)]).ok();
    let wrong = dump(&["filter", "verify", text(&alone)]).fails(2);
    assert!(wrong.contains("filter is a filter block: name its table with --table"), "{wrong}");
    // The filter is block 0 of a filter file.
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/v1/filter-file.bin");
    let file = store.folder.path().join("000001.filter");
    let head = std::fs::read(golden).unwrap()[..4096].to_vec();
    std::fs::write(&file, [&head, &bytes[start..start + len]].concat()).unwrap();
    dump(&["filter", "verify", "--table", text(&table), text(&file)]).ok();
    let block = dump(&["--block", "0", text(&file)]).ok();
    assert!(block.contains("\n  4096  ") && !block.contains("file header"), "{block}");
    assert!(dump(&["filter", "show", text(&file)]).ok().contains("section 0"));
    let other = store.folder.path().join("other");
    std::fs::write(&other, &bytes[..bytes.len() - 1]).unwrap();
    names_the_damage(&dump(&["filter", "verify", "--table", text(&other), text(&alone)]), &other);
    let mut bad = bytes[start..start + len].to_vec();
    let last = bad.len() - 100;
    bad[last] ^= 4;
    std::fs::write(&alone, &bad).unwrap();
    names_the_damage(&dump(&["filter", "show", text(&alone)]), &alone);
    names_the_damage(&dump(&["filter", "verify", "--table", text(&table), text(&alone)]), &alone);
}

#[test]
fn a_tree_fits_eighty_columns_and_is_drawn_without_a_current_file() {
    let store = filled_store();
    let tree = dump(&["tree", &store.db]).ok();
    // Its existence depends on timing.
    let has_reserve = store.files().contains_key("RESERVE");
    assert_eq!(tree.ends_with("iB, kept free for a full disk\n"), has_reserve, "{tree}");
    assert_eq!(tree.contains("\nRESERVE    "), has_reserve, "{tree}");
    assert!(tree.lines().all(|line| line.len() <= 80), "{tree}");
    assert_eq!(dump(&[&store.db]).ok(), tree, "a directory is shown as a tree");
    assert_eq!(dump(&["--json", &store.db]).ok(), dump(&["tree", "--json", &store.db]).ok());
    for part in ["keyspace   default", "1 table, 3,000 keys", "key00000 to key02999", "bits per key, rate "] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
    let plan = dump(&["filter", "plan", &store.db]).ok();
    assert!(plan.contains("wasted reads per absent lookup"), "{plan}");
    std::fs::remove_file(Path::new(&store.db).join("CURRENT")).unwrap();
    let without = dump(&["tree", &store.db]);
    assert_eq!((without.code, String::from_utf8(without.stdout).unwrap()), (Some(3), tree));
    assert!(
        without.stderr.contains("CURRENT is corrupt at offset 0: CURRENT: is missing"),
        "{}",
        without.stderr
    );
}

#[test]
fn a_tree_of_several_levels_is_drawn_and_planned_level_by_level() {
    let store = temp_store();
    let small = sievedb::KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .level_base_bytes(64 << 10)
        .level_ratio(4)
        .compression(sievedb::Compression::None);
    let options = || sievedb::Options::new().background_threads(0);
    let db = options().default_keyspace(small).open(&store.db).unwrap();
    for n in 0..20_000u64 {
        // Every number once, in an unrelated order.
        db.put(format!("key{:06}", n * 7919 % 20_000), [b'v'; 20]).unwrap();
        while n.is_multiple_of(500) && db.step().unwrap() {}
    }
    db.flush().unwrap();
    db.close().unwrap();
    let tree = dump(&["tree", &store.db]).ok();
    let plan = dump(&["filter", "plan", "--bits-per-key", "10", &store.db]).ok();
    assert!(tree.lines().all(|line| line.len() <= 80), "{tree}");
    let levels: Vec<&str> =
        tree.lines().filter(|line| line.starts_with("level ") && line.contains(':')).collect();
    assert!(levels.len() >= 3 && levels.iter().any(|line| line.starts_with("level 3: ")), "{tree}");
    assert_eq!(
        tree.lines().filter(|line| line.trim_start().starts_with('[')).count(),
        levels.len(),
        "{tree}"
    );
    let rows = plan.lines().skip_while(|line| !line.contains("the same bits")).skip(1);
    let mut seen = 0;
    for row in rows {
        let numbers: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [.., best, even] = numbers[..] else { panic!("{row}") };
        assert!(best <= even * 1.001, "{row}");
        seen += 1;
    }
    assert_eq!(seen, 10, "{plan}");
}

#[test]
fn filter_results_are_the_same_in_json() {
    let store = filled_store();
    let table = table(&store);
    let json = |args: &[&str]| -> serde_json::Value { serde_json::from_str(&dump(args).ok()).unwrap() };
    let verified = json(&["filter", "verify", "--json", text(&table)]);
    let none: [serde_json::Value; 0] = [];
    assert_eq!(
        verified,
        serde_json::json!({ "file": text(&table), "keys": KEYS, "denied": 0, "first_denied": none })
    );
    let measured = json(&["filter", "measure", "--json", "--probes", "200000", text(&table)]);
    assert_eq!((&measured["keys"], &measured["random"]["probed"]), (&KEYS.into(), &200_000.into()));
    let predicted = measured["predicted_rate"].as_f64().unwrap();
    for sample in [&measured["random"], &measured["near_misses"]] {
        let number = |name: &str| sample[name].as_f64().unwrap();
        let (rate, probed) = (number("rate"), number("probed"));
        assert!(number("rate_low") <= rate && rate <= number("rate_high"), "{measured}");
        // Six standard deviations, because the store has a random seed.
        let spread = (predicted * (1.0 - predicted) / probed).sqrt();
        assert!((rate - predicted).abs() <= 6.0 * spread + 1.0 / probed, "{measured}");
    }
    let plan = json(&["filter", "plan", "--json", "--bits-per-key", "8", &store.db]);
    assert_eq!((&plan["keyspace"], &plan["keys"]), (&"default".into(), &KEYS.into()));
    assert_eq!(plan["planned_bits_per_key"], 8.0);
    assert_eq!(
        (plan["runs"][0]["keys"].as_u64(), plan["budgets"].as_array().unwrap().len()),
        (Some(3000), 10)
    );
    assert!((plan["runs"][0]["rate"].as_f64().unwrap() - predicted).abs() < 1e-12, "{plan}");
}

#[test]
fn the_keys_of_all_blocks_one_by_one_are_the_keys_of_the_table() {
    let store = filled_store();
    let (table, log) = (table(&store), only(&store, ".wal"));
    let all = dump(&["--keys", text(&table)]).ok();
    let mut keys = String::new();
    for block in 0.. {
        let outcome = dump(&["--keys", "--block", &block.to_string(), text(&table)]);
        if outcome.code == Some(2) {
            assert!(outcome.fails(2).contains("has no block "), "{block}");
            break;
        }
        let of_block = outcome.ok();
        assert!(of_block.len() < all.len());
        keys += &of_block;
    }
    assert!(keys == all, "{}", keys.len());
    let values = dump(&["--values", "--block", "1", text(&log)]).ok();
    assert_eq!(values, "0\t3001\tput\tlogged\tnot in a table\n");
    assert_eq!(dump(&["--values", "--block", "0", text(&log)]).ok(), "");
}

#[test]
fn without_the_first_edit_of_the_manifest_tables_are_listed_by_their_properties() {
    let store = filled_store();
    let manifest = store.paths_of("").into_iter().find(|path| text(path).contains("MANIFEST")).unwrap();
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[90] ^= 1;
    std::fs::write(&manifest, &bytes).unwrap();
    let outcome = dump(&["tree", &store.db]);
    assert_eq!(names_the_damage(&outcome, &manifest), 64);
    assert!(outcome.stderr.contains("no edit that can be read makes a keyspace"), "{outcome:?}");
    let out = String::from_utf8(outcome.stdout).unwrap();
    assert!(out.contains("keyspace   none can be read") && out.contains("key00000 to key02999"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("    -  ") && line.contains("3,000")), "{out}");
    let json = dump(&["tree", "--json", &store.db]);
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&object["keys"], &object["level"]), (&KEYS.into(), &serde_json::Value::Null));
    std::fs::write(Path::new(&store.db).join("000099.sst"), b"hello").unwrap();
    let message = dump(&["tree", &store.db]).stderr;
    assert!(message.contains("000099.sst is corrupt at offset 0: table: it is none"), "{message}");
}

#[cfg(unix)]
#[test]
fn control_characters_in_file_names_are_escaped() {
    let store = filled_store();
    let folder = store.folder.path();
    let name = folder.join("a\x1b[2J\nb");
    std::fs::copy(table(&store), &name).unwrap();
    let shown = "a\\x1b[2J\\nb";
    let heading = dump(&[text(&name)]).ok();
    assert!(heading.lines().next().unwrap().contains(&format!("{shown}: table, ")), "{heading}");
    let verified = dump(&["filter", "verify", text(&name)]).ok();
    let measured = dump(&["filter", "measure", "--probes", "10", text(&name)]).ok();
    std::fs::remove_file(&name).unwrap();
    let mut messages = vec![
        heading,
        verified,
        measured,
        dump(&[text(&name)]).fails(3),
        dump(&["tree", text(&name)]).fails(3),
    ];
    std::fs::write(&name, "x").unwrap();
    messages.push(dump(&[text(&name)]).fails(3));
    messages.push(dump(&["filter", "verify", text(&name)]).fails(2));
    std::fs::remove_file(&name).unwrap();
    std::fs::rename(&store.db, &name).unwrap();
    std::fs::remove_file(name.join("CURRENT")).unwrap();
    messages.push(dump(&["tree", text(&name)]).stderr);
    for message in messages {
        assert!(message.contains(shown) || message.contains("keyspace"), "{message}");
        assert!(!message.contains('\x1b'), "{message}");
    }
}

#[test]
fn the_help_has_examples_and_no_output_has_two_blank_lines_in_a_row() {
    assert!(dump(&["--help"]).ok().contains("\nExamples:\n  sievedb-dump "));
    let store = filled_store();
    let table = table(&store);
    for args in
        [vec!["--block", "0", text(&table)], vec!["--all", text(&table)], vec!["--summary", text(&table)]]
    {
        let out = dump(&args).ok();
        assert!(!out.contains("\n\n\n"), "{args:?}: {out}");
    }
}

/// Sketches are exchanged between programs.
#[test]
fn a_sketch_is_named_and_described_and_a_damaged_one_is_refused() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sketches/tests/golden/v1");
    let mut kinds = std::collections::BTreeSet::new();
    for path in std::fs::read_dir(&golden).unwrap().map(|entry| entry.unwrap().path()) {
        let out = dump(&[text(&path)]).ok();
        assert!(out.contains("bytes without the header") && !out.contains("seed"), "{out}");
        let json = dump(&["--json", text(&path)]).ok();
        let (_, kind) = json.split_once("\"kind\":\"").unwrap();
        let (kind, _) = kind.split_once('"').unwrap();
        assert!(out.contains(kind) && !json.contains("seed"), "{json}");
        kinds.insert(kind.to_owned());
        let secret = dump(&["--secrets", text(&path)]).ok();
        assert!(secret.contains("0123456789abcdef"), "{secret}");
    }
    assert_eq!(kinds.len(), 17, "{kinds:?}");
    let store = temp_store();
    let copy = Path::new(&store.db).with_extension("sketch");
    let mut bytes = std::fs::read(golden.join("bloom.bin")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&copy, &bytes).unwrap();
    let outcome = dump(&[text(&copy)]);
    assert!(
        outcome.code == Some(3) && outcome.stderr.contains("is corrupt: sketch body checksum"),
        "{outcome:?}"
    );
    assert_eq!(dump(&["--keys", text(&golden.join("bloom.bin"))]).code, Some(2));
}
