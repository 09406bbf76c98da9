use crate::tool::{Conversation, run, run_with, temp_store};

#[test]
fn contains_prints_present_or_absent_and_exits_with_1_for_absent() {
    let store = temp_store();
    let db = &store.db;
    store.load(b"apple\t1\npear\t2\n");
    assert_eq!(run(&["contains", db, "apple"]).ok(), "present\n");
    let absent = run(&["contains", db, "plum"]);
    assert_eq!((absent.code, &absent.stdout[..], &absent.stderr[..]), (Some(1), &b"absent\n"[..], ""));

    let keys = b"pear\nplum\napple\n";
    assert_eq!(run_with(&["contains", db, "-"], keys).ok(), "pear\tpresent\nplum\tabsent\napple\tpresent\n");
    assert_eq!(run_with(&["contains", db, "-", "--only", "absent"], keys).ok(), "plum\n");
    assert_eq!(run_with(&["contains", db, "-", "--only", "present"], keys).ok(), "pear\napple\n");
    run(&["contains", db, "pear", "--only", "present"]).fails(2);

    let mut conversation = Conversation::begin(&["contains", db, "-"]);
    for (key, answer) in [("pear", "pear\tpresent"), ("plum", "plum\tabsent")] {
        conversation.send(&format!("{key}\n"));
        assert_eq!(conversation.receive(), answer);
    }
    conversation.end();
}

#[test]
fn deleting_succeeds_whether_the_key_was_present_or_absent() {
    let store = temp_store();
    let db = &store.db;
    store.load(b"a\t1\nb\t2\nc\t3\nd\t4\n\xff\t5\n");
    assert_eq!(run(&["delete", db, "b"]).ok(), "");
    assert_eq!(run(&["delete", db, "never there"]).ok(), "");
    run(&["get", db, "b"]).fails(1);
    let report = run_with(&["delete", db, "-", "--escaped"], b"c\n\\xff\n").ok();
    assert!(report.starts_with("2 keys deleted in "), "{report}");
    assert_eq!(run(&["scan", db]).ok(), "a\t1\nd\t4\n");
    let message = run_with(&["delete", db, "-", "--escaped"], b"a\n\\\nd\n").fails(2);
    assert!(
        message.contains("standard input, line 2: ") && message.ends_with("; 1 line before it deleted\n")
    );
    assert_eq!(run(&["scan", db]).ok(), "d\t4\n");
    assert_eq!(run(&["delete", db, "--escaped", "\\x64"]).ok(), "");
    assert_eq!(run(&["scan", db]).ok(), "");
}

#[test]
fn ranges_prefixes_and_all_keys_are_deleted_without_a_word() {
    let store = temp_store();
    let db = &store.db;
    store.load(b"a\t1\nb\t2\nb1\t3\nb2\t4\nc\t5\nd..e\t6\n");
    assert_eq!(run(&["delete", db, "--range", "b1..c"]).ok(), "");
    assert_eq!(run(&["scan", db]).ok(), "a\t1\nb\t2\nc\t5\nd..e\t6\n");
    assert_eq!(run(&["delete", db, "--range", "..b"]).ok(), "");
    assert_eq!(run(&["delete", db, "--prefix", "d"]).ok(), "");
    assert_eq!(run(&["scan", db]).ok(), "b\t2\nc\t5\n");
    for range in ["c..b", "b", "a..b..c", "a...b"] {
        run(&["delete", db, "--range", range]).fails(2);
    }
    for all in [["--range", ".."], ["--prefix", ""]] {
        let message = run(&["delete", db, all[0], all[1]]).fails(2);
        assert!(message.contains("--all deletes them"), "{message}");
    }
    run(&["delete", db, "b", "--all"]).fails(2);
    run(&["delete", db]).fails(2);
    run(&["delete", db, "--all", "--json"]).fails(2);
    assert_eq!(run(&["delete", db, "--range", "c.."]).ok(), "");
    assert_eq!(run(&["scan", db]).ok(), "b\t2\n");
    assert_eq!(run(&["delete", db, "--all"]).ok(), "");
    assert_eq!(run(&["scan", db]).ok(), "");
    store.load(b"d..e\t6\n");
    assert_eq!(run(&["delete", db, "--escaped", "--range", "d\\x2e\\x2ee..e"]).ok(), "");
    assert_eq!(run(&["scan", db]).ok(), "");
}

#[test]
fn json_results_have_text_as_text_and_other_bytes_as_base64() {
    let store = temp_store();
    let db = &store.db;
    let summary: serde_json::Value = serde_json::from_slice(
        &run_with(&["load", db, "-", "--json", "--escaped"], b"a\t1\n\\xff\t\xfe\n\xc3\xbc\t\"\n").stdout,
    )
    .unwrap();
    assert_eq!((&summary["lines"], &summary["data_bytes"]), (&3.into(), &7.into()));

    assert_eq!(run(&["get", db, "a", "--json"]).ok(), "{\"key\":\"a\",\"value\":\"1\"}\n");
    let absent = run(&["get", db, "b", "--json"]);
    assert_eq!((absent.code, &absent.stdout[..]), (Some(1), &b"{\"key\":\"b\",\"value\":null}\n"[..]));
    assert_eq!(
        run_with(&["get", db, "-", "--json", "--escaped"], b"b\n\\xff\n").ok(),
        "{\"key\":\"b\",\"value\":null}\n{\"key_base64\":\"/w==\",\"value_base64\":\"/g==\"}\n"
    );
    assert_eq!(
        run(&["scan", db, "--json"]).ok(),
        "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"ü\",\"value\":\"\\\"\"}\n\
         {\"key_base64\":\"/w==\",\"value_base64\":\"/g==\"}\n"
    );
    assert_eq!(run(&["contains", db, "a", "--json"]).ok(), "{\"key\":\"a\",\"present\":true}\n");
    assert_eq!(
        run_with(&["contains", db, "-", "--json"], b"a\nb\n").ok(),
        "{\"key\":\"a\",\"present\":true}\n{\"key\":\"b\",\"present\":false}\n"
    );

    let compacted: serde_json::Value = serde_json::from_str(&run(&["compact", db, "--json"]).ok()).unwrap();
    assert_eq!((&compacted["before"]["tables"], &compacted["after"]["tables"]), (&0.into(), &1.into()));
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", db, "--json"]).ok()).unwrap();
    let keyspace = &stats["keyspaces"][0];
    assert_eq!((&keyspace["keyspace"], &keyspace["total"]["keys"]), (&"default".into(), &3.into()));
    assert!(keyspace["levels"][0]["level"].is_u64() && stats["disk_bytes"].is_u64(), "{stats}");
    let deleted: serde_json::Value =
        serde_json::from_slice(&run_with(&["delete", db, "-", "--json"], b"a\n").stdout).unwrap();
    assert_eq!(deleted["lines"], 1);
}

#[test]
fn of_many_keyspaces_a_note_and_a_refusal_name_only_the_first() {
    let store = temp_store();
    let db = &store.db;
    let names: Vec<String> = (10..22).map(|n| format!("k{n}")).collect();
    names.iter().for_each(|name| _ = run(&["put", db, "x", "1", "--keyspace", name]).creates(name));
    let counted = run(&["count", db]).stderr;
    assert!(
        counted.contains("12 keyspaces are left out: k10, ") && counted.contains("k19 and 2 more"),
        "{counted}"
    );
    let refused = run(&["count", db, "--keyspace", "k2"]).stderr;
    assert!(refused.contains("and 3 more") && !refused.contains("k21"), "{refused}");
}

#[test]
fn count_counts_the_keys_of_a_range_exactly() {
    let store = temp_store();
    let db = &store.db;
    store.load(b"a\nb1\nb2\nc\n\\xff\n");
    run(&["compact", db]).ok();
    store.load(b"b1\tagain\n");
    run(&["delete", db, "c"]).ok();
    run(&["put", db, "x", "1", "--keyspace", "other"]).creates("other");
    let counted = run(&["count", db]);
    assert_eq!((counted.code, &counted.stdout[..]), (Some(0), &b"4\n"[..]));
    assert_eq!(counted.stderr, "sievedb: note: 1 keyspace is left out: other; --keyspace names one\n");
    let count = |options: &[&str]| {
        let args = [&["count", db, "--keyspace", "default"][..], options].concat();
        run(&args).ok()
    };
    assert_eq!(count(&["--prefix", "b"]), "2\n");
    assert_eq!(count(&["--from", "b2", "--to", "c"]), "1\n");
    assert_eq!(count(&["--prefix", "\\xff", "--escaped"]), "1\n");
    assert_eq!(run(&["count", db, "--keyspace", "other"]).ok(), "1\n");
    assert_eq!(count(&["--json"]), "{\"count\":4,\"keyspace\":\"default\"}\n");
}

#[test]
fn keyspaces_are_listed_with_entries_tables_and_size() {
    let store = temp_store();
    let db = &store.db;
    store.load(b"a\nb\n");
    run(&["compact", db]).ok();
    run(&["put", db, "k", "v", "--keyspace", "größe\tx"]).creates("größe\\tx");
    let listed = run(&["keyspaces", db]).ok();
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["entries", "tables", "size", "filter", "keyspace"]);
    assert_eq!((&lines[1][..2], lines[1].last()), (&["2", "1"][..], Some(&"default")));
    assert_eq!(lines[2], ["1", "0", "0", "B", "auto,", "10", "bits", "größe\\tx"]);
    let objects = run(&["keyspaces", db, "--json"]).ok();
    let objects: Vec<serde_json::Value> =
        objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&objects[0]["keyspace"], &objects[0]["entries"]), (&"default".into(), &2.into()));
    assert_eq!((&objects[1]["keyspace"], &objects[1]["tables"]), (&"größe\tx".into(), &0.into()));
}

#[test]
fn refilter_gives_existing_tables_the_requested_filters() {
    let store = temp_store();
    let db = &store.db;
    let lines: String = (0..3000).map(|n| format!("key{n:05}\n")).collect();
    store.load(lines.as_bytes());
    run(&["compact", db]).ok();
    run(&["put", db, "k", "v", "--keyspace", "other"]).creates("other");
    run(&["compact", db]).ok();
    let bits = |options: &[&str]| {
        let report = run(&[&["refilter", db, "--json"][..], options].concat()).ok();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let [before, after] =
            ["before", "after"].map(|when| report[when]["filter_bits_per_key"].as_f64().unwrap_or(0.0));
        (before, after, report["after"]["tables"].as_u64().unwrap())
    };
    let (built, twenty, tables) =
        bits(&["--kind", "bloom", "--bits-per-key", "20", "--uniform", "--keyspace", "default"]);
    assert!(built < 16.0 && (20.0..22.0).contains(&twenty) && tables == 1, "{built} {twenty} {tables}");
    let (before, none, tables) = bits(&["--kind", "none"]);
    assert!(before > 19.0 && none == 0.0 && tables == 2, "{before} {none} {tables}");
    let (_, again, _) = bits(&["--keyspace", "default"]);
    assert!((again - built).abs() < 0.01, "{again} {built}");
    let text = run(&["refilter", db, "--false-positive-rate", "0.001", "--uniform"]).ok();
    assert!(text.starts_with("before  2 tables, filters "), "{text}");
    assert!(
        text.contains("\nafter   2 tables, filters ") && text.contains(" false positives predicted"),
        "{text}"
    );
    assert_eq!(run(&["count", db, "--keyspace", "default"]).ok(), "3000\n");
    run(&["verify", db]).ok();
    for wrong in [&["--bits-per-key", "-1"][..], &["--bits-per-key", "65"], &["--false-positive-rate", "1"]] {
        run(&[&["refilter", db][..], wrong].concat()).fails(2);
    }
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completion", shell]).ok();
        for command in ["demo", "load", "contains", "count", "keyspaces", "refilter", "completion"] {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
    let store = temp_store();
    let pages = store.folder.path().join("man1");
    assert_eq!(run(&["man", pages.to_str().unwrap()]).ok(), "");
    let page = std::fs::read_to_string(pages.join("sievedb-scan.1")).unwrap();
    assert!(page.contains(".TH sievedb-scan") && page.contains("prefix"), "{page}");
    assert!(page.contains(".SH \"EXAMPLES\"\n.nf\n  sievedb scan my.db \\-\\-prefix user/"), "{page}");
    assert!(std::fs::read_to_string(pages.join("sievedb.1")).unwrap().contains("contains"));
    for name in ["sievedb-count", "sievedb-keyspaces", "sievedb-refilter", "sievedb-dump"] {
        assert!(pages.join(format!("{name}.1")).exists(), "{name}");
    }
    assert!(run(&["completion", "bash", "--program", "sievedb-dump"]).ok().contains("summary"));
    run(&["completion", "bash", "--keyspace", "k"]).fails(2);
}
