use serde_json::Value;

use crate::tool::{TempStore, run, run_with, temp_store};

fn sample() -> TempStore {
    let store = temp_store();
    run(&["put", &store.db, "a", "1"]).ok();
    run(&["put", &store.db, "a", "2", "--keyspace", "users"]).creates("users");
    run(&["put", &store.db, "--escaped", r"b\x00", r"\xff", "--keyspace", "users"]).ok();
    run(&["put", &store.db, "c", "3", "--keyspace", "tab\tand \\"]).creates("tab\\tand \\\\");
    store
}

#[test]
fn all_keyspaces_are_scanned_and_loaded_again_as_text_and_as_json() {
    let store = sample();
    let text = "default\ta\t1\nusers\ta\t2\nusers\tb\\x00\t\\xff\ntab\\tand \\\\\tc\t3\n";
    assert_eq!(run(&["scan", &store.db, "--all-keyspaces"]).ok(), text);
    assert_eq!(
        run(&["scan", &store.db, "--all-keyspaces", "--limit", "2"]).ok(),
        "default\ta\t1\nusers\ta\t2\n"
    );
    assert_eq!(
        run(&["scan", &store.db, "--all-keyspaces", "--reverse", "--prefix", "a"]).ok(),
        "default\ta\t1\nusers\ta\t2\n"
    );
    for (print, read) in [(None, "--escaped"), (Some("--json"), "--from-json")] {
        let print = [&["scan", &store.db, "--all-keyspaces"], print.as_slice()].concat();
        let copy = temp_store();
        let lines = run(&print).ok();
        run_with(&["load", &copy.db, "-", "--all-keyspaces", read], lines.as_bytes()).ok();
        assert_eq!(run(&["scan", &copy.db, "--all-keyspaces"]).ok(), text, "{read}");
    }
}

#[test]
fn lines_without_a_keyspace_are_refused_with_their_number() {
    let store = temp_store();
    let load = |input: &str, more: &[&str]| {
        run_with(&[&["load", &store.db, "-", "--all-keyspaces"], more].concat(), input.as_bytes())
    };
    for (input, more, why) in [
        ("a\tb\tc\nd\n", &[][..], "standard input, line 2: the line has no keyspace before its key"),
        ("\tb\tc\n", &[], "the name of a keyspace is not empty"),
        ("\\xff\tb\tc\n", &["--escaped"], "the name of the keyspace is not UTF-8"),
        ("{\"key\":\"a\",\"value\":\"b\"}\n", &["--from-json"], "the object has no keyspace"),
        ("{\"keyspace\":\"a\",\"key\":\"a\"}\n", &["--from-json"], "the object has no value"),
    ] {
        let refused = load(input, more);
        assert_eq!(refused.code, Some(2), "{input}");
        assert!(refused.stderr.contains(why), "{why}: {}", refused.stderr);
    }
    assert_eq!(load("", &["--keyspace", "a"]).code, Some(2));
    let json = "{\"key\":\"a\",\"keyspace\":\"b\",\"value\":\"c\"}\n";
    assert_eq!(run_with(&["load", &store.db, "-"], json.as_bytes()).code, Some(2));
}

#[test]
fn a_dropped_keyspace_is_gone_with_the_record_of_its_journal() {
    let store = sample();
    let journal = store.folder.path().join("journal");
    let journal = journal.to_str().unwrap();
    let uniq = || run_with(&["uniq", &store.db, "--keyspace", "users", "--journal", journal], b"x\ny\n");
    assert_eq!(uniq().code, Some(0));
    assert_eq!(run(&["drop-keyspace", &store.db, "users"]).ok(), "keyspace users dropped, 4 entries\n");
    let gone = run(&["drop-keyspace", &store.db, "users"]);
    assert_eq!(gone.code, Some(3));
    assert!(gone.stderr.contains("there is no keyspace users"), "{}", gone.stderr);
    assert_eq!(run(&["scan", &store.db, "--keyspace", "users"]).code, Some(3));
    assert_ne!(run(&["drop-keyspace", &store.db, "default"]).code, Some(0));
    assert_eq!(run(&["get", &store.db, "a"]).ok(), "1\n");
    // Its journal begins again, in an empty file.
    assert_ne!(uniq().code, Some(0), "the old file is not the journal any more");
    std::fs::write(journal, "").unwrap();
    assert_eq!(uniq().code, Some(0));
    assert_eq!(std::fs::read_to_string(journal).unwrap(), "x\ny\n");
}

#[test]
fn keyspaces_and_stats_show_the_filters_and_options_of_each_keyspace() {
    let store = sample();
    let refilter = [
        "refilter",
        &store.db,
        "--keyspace",
        "users",
        "--kind",
        "bloom",
        "--bits-per-key",
        "12",
        "--uniform",
    ];
    run(&refilter).ok();
    let lines = run(&["keyspaces", &store.db]).ok();
    let line = |end: &str| {
        lines.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{lines}")).to_owned()
    };
    assert!(line("  filter                    keyspace").starts_with("        entries"), "{lines}");
    assert!(
        line("  default").contains("  auto, 10 bits  ") && line("  users").contains("  bloom, 12 bits  "),
        "{lines}"
    );
    let stats = run(&["stats", &store.db, "--keyspace", "users"]).ok();
    assert!(stats.contains("\nfilters    bloom, 12 bits per key, the same on every level\n"), "{stats}");
    assert!(
        stats.contains("\noptions    block_bytes 4.00 KiB, table_bytes 64.00 MiB, memtable_bytes auto, "),
        "{stats}"
    );
    let json = run(&["stats", &store.db, "--keyspace", "users", "--json"]).ok();
    let stats: Value = serde_json::from_str(&json).unwrap();
    let options = &stats["keyspaces"][0]["options"];
    assert_eq!(
        (&options["filter"]["kind"], &options["filter"]["size"]["bits_per_key"]),
        (&"bloom".into(), &12.0.into())
    );
    let json = run(&["keyspaces", &store.db, "--json"]).ok();
    let users: Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!(&users["options"], options);
}

#[test]
fn the_value_of_a_put_is_read_from_a_file_or_from_standard_input_as_it_is() {
    let store = temp_store();
    let file = store.folder.path().join("value");
    std::fs::write(&file, b"\\x00\n\xff\n").unwrap();
    run(&["put", &store.db, "k", "--escaped", "--value-file", file.to_str().unwrap()]).ok();
    assert_eq!(run(&["get", &store.db, "k"]).ok(), "\\\\x00\\n\\xff\\n\n");
    run_with(&["put", &store.db, "i", "--value-file", "-"], b"from\ninput").ok();
    assert_eq!(run(&["get", &store.db, "i", "--raw"]).ok(), "from\ninput");
    assert_eq!(run(&["put", &store.db, "k", "value", "--value-file", "-"]).code, Some(2));
    assert_eq!(run(&["put", &store.db, "k"]).code, Some(2), "there is no value");
    assert_eq!(run(&["put", &store.db, "k", "--value-file", "/nowhere"]).code, Some(3));
}

#[test]
fn every_command_that_opens_a_store_takes_its_memory() {
    let store = sample();
    let db = &store.db;
    let commands: [&[&str]; 19] = [
        &["put", db, "a", "1"],
        &["get", db, "a"],
        &["contains", db, "a"],
        &["delete", db, "b"],
        &["cas", db, "a", "--from", "1", "--to", "1"],
        &["scan", db],
        &["count", db],
        &["load", db, "-"],
        &["uniq", db],
        &["keyspaces", db],
        &["stats", db],
        &["compact", db],
        &["refilter", db],
        &["verify", db],
        &["diff", db, db],
        &["digest", db, "--output", "/dev/null"],
        &["drop-keyspace", db, "users"],
        &["repair", db, "--into", &format!("{db}.new")],
        &["checkpoint", db, &format!("{db}.copy")],
    ];
    for command in commands {
        let done = run(&[command, &["--memory", "8M"]].concat());
        assert_eq!(done.code, Some(0), "{command:?}: {}", done.stderr);
        let refused = run(&[command, &["--memory", "8X"]].concat());
        assert_eq!(refused.code, Some(2), "{command:?}: {}", refused.stderr);
        if !["verify", "repair", "drop-keyspace"].contains(&command[0]) {
            let small = run(&[command, &["--memory", "1K"]].concat());
            assert!(small.stderr.contains("memory_budget is below 1 MiB"), "{command:?}: {}", small.stderr);
        }
    }
}
