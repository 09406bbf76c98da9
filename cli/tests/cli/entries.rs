//! Entries written are the entries read: keys, values, order, escapes, keyspaces.

use std::collections::BTreeMap;
use std::io::Read;

use crate::tool::{Conversation, command, run, run_with, temp_store};

#[test]
fn a_long_key_is_shortened_in_messages() {
    let (store, key) = (temp_store(), "k".repeat(300));
    store.load(b"a\t1\n");
    let short = format!("{}... (300 bytes)", "k".repeat(40));
    for args in [&["get", &store.db, &key][..], &["cas", &store.db, &key, "--from", "1"]] {
        assert_eq!(run(args).fails(1), format!("sievedb: absent: {short}\n"));
    }
    run(&["put", &store.db, &key, "1"]).ok();
    let present = run(&["put", &store.db, &key, "2", "--if-absent"]).fails(1);
    assert_eq!(present, format!("sievedb: present: {short}\n"));
    let other = run(&["cas", &store.db, &key, "--from", "2"]).fails(1);
    assert_eq!(other, format!("sievedb: {short} holds 1\n"));
}

#[test]
fn get_prints_the_value_of_put() {
    let store = temp_store();
    let db = &store.db;
    assert_eq!(run(&["put", db, "planet", "Saturn"]).ok(), "");
    assert_eq!(run(&["put", db, "empty", ""]).ok(), "");
    assert_eq!(run(&["put", db, "-5", "-7"]).ok(), "");
    assert_eq!(run(&["get", db, "planet"]).ok(), "Saturn\n");
    assert_eq!(run(&["get", db, "empty"]).ok(), "\n");
    assert_eq!(run(&["get", db, "-5"]).ok(), "-7\n");
    assert_eq!(run(&["put", db, "planet", "Uranus"]).ok(), "");
    assert_eq!(run(&["get", db, "planet"]).ok(), "Uranus\n");
}

#[test]
fn a_present_key_is_left_as_it_is_if_it_must_be_absent() {
    let store = temp_store();
    let put = |value: &str| run(&["put", &store.db, "lock", value, "--if-absent"]);
    assert_eq!(put("mine").ok(), "");
    assert_eq!(put("yours").fails(1), "sievedb: present: lock\n");
    assert_eq!(run(&["get", &store.db, "lock"]).ok(), "mine\n");
    run(&["delete", &store.db, "lock"]).ok();
    assert_eq!(put("yours").ok(), "");
}

#[test]
fn a_key_is_set_only_if_it_has_the_expected_value() {
    let store = temp_store();
    run(&["put", &store.db, "state", "draft"]).ok();
    let cas = |more: &[&str]| run(&[&["cas", &store.db, "state"], more].concat());
    let state = || run(&["get", &store.db, "state"]);
    assert_eq!(cas(&["--from", "final", "--to", "x"]).fails(1), "sievedb: state holds draft\n");
    assert_eq!(cas(&["--to", "x"]).fails(1), "sievedb: state holds draft\n");
    assert_eq!(state().ok(), "draft\n");
    assert_eq!(cas(&["--from", "draft", "--to", "-1"]).ok(), "");
    assert_eq!(state().ok(), "-1\n");
    assert_eq!(cas(&["--from", "-1"]).ok(), "");
    state().fails(1);
    assert_eq!(cas(&["--from", "-1"]).fails(1), "sievedb: absent: state\n");
    assert_eq!(cas(&["--to", "a\\tb", "--escaped"]).ok(), "");
    assert_eq!(state().ok(), "a\\tb\n");
    assert!(cas(&[]).fails(2).contains("--from"));
}

#[test]
fn an_absent_key_is_named_on_standard_error_only_and_exits_with_1() {
    let store = temp_store();
    run(&["put", &store.db, "planet", "Saturn"]).ok();
    for key in ["moon", "plane", "planets", ""] {
        let message = run(&["get", &store.db, key]).fails(1);
        assert_eq!(message, format!("sievedb: absent: {key}\n"));
    }
}

#[test]
fn lines_are_split_at_the_first_tab_and_any_bytes_are_kept() {
    let store = temp_store();
    let report = store.load(b"a\tb\tc\nalone\n\t\nwindows\tline\\x0d\n\xff\0\t\xfe\nlast\tone");
    assert!(report.starts_with("6 lines loaded, 31 B of keys and values, in "), "{report}");
    assert!(report.contains(" lines a second; settled in "), "{report}");
    let all = "\t\na\tb\\tc\nalone\t\nlast\tone\nwindows\tline\\x0d\n\\xff\\x00\t\\xfe\n";
    assert_eq!(run(&["scan", &store.db]).ok(), all);
    assert_eq!(run(&["get", &store.db, ""]).ok(), "\n");
    assert_eq!(run(&["get", &store.db, "windows", "--raw"]).ok(), "line\r");
    let raw = run(&["get", &store.db, "--escaped", "\\xff\\x00", "--raw"]);
    assert_eq!((raw.code, &raw.stdout[..]), (Some(0), &b"\xfe"[..]));
}

#[test]
fn load_and_uniq_end_with_a_settled_store() {
    for command in ["load", "uniq"] {
        let store = temp_store();
        for round in 0..3 {
            let lines: String =
                (0..40_000).map(|n| format!("{:032x}\n", n * 7919 % 40_009 * 3 + round)).collect();
            let options: &[&str] = if round == 1 { &["--no-settle"] } else { &[] };
            let args = [&[command, &store.db, "-", "--memory", "1M"], options].concat();
            run_with(&args, lines.as_bytes()).ok();
        }
        let stats: serde_json::Value =
            serde_json::from_str(&run(&["stats", &store.db, "--json"]).ok()).unwrap();
        let runs = stats["keyspaces"][0]["levels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|level| level["runs"].as_u64().unwrap());
        let runs: Vec<_> = runs.collect();
        assert!(runs[0] <= 1 && runs.iter().sum::<u64>() > 0, "{command}: {runs:?}");
    }
}

#[test]
fn a_later_line_replaces_an_earlier_one_and_a_file_is_read_like_standard_input() {
    let store = temp_store();
    let file = store.folder.path().join("lines");
    std::fs::write(&file, "k\t1\nk\t2\n").unwrap();
    run(&["load", &store.db, file.to_str().unwrap()]).ok();
    assert_eq!(run(&["scan", &store.db]).ok(), "k\t2\n");
    store.load(b"");
    assert_eq!(run(&["scan", &store.db]).ok(), "k\t2\n");
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn random_bytes(state: &mut u64) -> Vec<u8> {
    const PIECES: [&[u8]; 16] = [
        b"\t",
        b"\n",
        b"\\",
        b"\r",
        b"\r\n",
        b"\\x41",
        b"\\n",
        b"\0",
        b" ",
        b"x",
        b"\xff",
        b"\xc3",
        b"\xc3\xbc",
        b"\xf0\x9f\xa6\x80",
        b"\xe2\x80\xae",
        b"\xef\xbb\xbf",
    ];
    let mut bytes = Vec::new();
    for _ in 0..random(state) % 9 {
        match random(state) % 20 {
            piece @ 0..16 => bytes.extend_from_slice(PIECES[piece as usize]),
            _ => bytes.push(random(state) as u8),
        }
    }
    bytes
}

#[test]
fn load_reads_the_output_of_scan_byte_for_byte() {
    let (one, two) = (temp_store(), temp_store());
    let mut state = 1;
    let mut entries: BTreeMap<Vec<u8>, Vec<u8>> =
        (0..5000).map(|_| (random_bytes(&mut state), random_bytes(&mut state))).collect();
    entries.extend((0..=255).map(|byte| (vec![byte], vec![byte; 3])));
    entries.insert(Vec::new(), Vec::new());
    let db = sievedb::Db::open(&one.db).unwrap();
    entries.iter().for_each(|(key, value)| db.put(key, value).unwrap());
    db.close().unwrap();

    let printed = run(&["scan", &one.db]).ok();
    assert_eq!(printed.lines().count(), entries.len());
    assert!(printed.split('\n').all(|line| line.is_empty() || line.matches('\t').count() == 1));
    assert!(!printed.contains('\r'));
    run_with(&["load", &two.db, "-", "--escaped"], printed.as_bytes()).ok();
    let db = sievedb::Db::open(&two.db).unwrap();
    let loaded: BTreeMap<Vec<u8>, Vec<u8>> =
        db.iter().map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(loaded == entries);
    db.close().unwrap();
    assert_eq!(run(&["scan", &two.db]).ok(), printed);

    let keys: String =
        printed.lines().skip(1).map(|line| line.split('\t').next().unwrap().to_owned() + "\n").collect();
    let found = run_with(&["get", &two.db, "-", "--escaped"], keys.as_bytes()).ok();
    assert_eq!(found, printed[printed.find('\n').unwrap() + 1..]);
    let found = run_with(&["contains", &two.db, "-", "--only", "present", "--escaped"], keys.as_bytes()).ok();
    assert_eq!(found, keys);
    let report = run_with(&["delete", &two.db, "-", "--escaped"], keys.as_bytes()).ok();
    assert!(report.contains(" keys deleted in "), "{report}");
    assert_eq!(run(&["scan", &two.db]).ok(), "\t\n");
}

#[test]
fn text_is_printed_as_it_is() {
    let store = temp_store();
    run(&["put", &store.db, "größe", "漢字 🦀"]).ok();
    assert_eq!(run(&["scan", &store.db]).ok(), "größe\t漢字 🦀\n");
    assert_eq!(run(&["get", &store.db, "größe"]).ok(), "漢字 🦀\n");
    assert_eq!(run_with(&["contains", &store.db, "-"], "größe\n".as_bytes()).ok(), "größe\tpresent\n");
    assert_eq!(run(&["get", &store.db, "groß"]).fails(1), "sievedb: absent: groß\n");
}

#[test]
fn the_same_line_is_the_same_key_for_every_command() {
    let store = temp_store();
    let db = &store.db;
    let line = b"C:\\temp\\new\n";
    let with = |args: &[&str]| run_with(&[&args[..1], &[db], &args[1..]].concat(), line);
    assert_eq!(with(&["uniq"]).ok(), "C:\\temp\\new\n");
    assert_eq!(with(&["contains", "-"]).ok(), "C:\\temp\\new\tpresent\n");
    assert_eq!(with(&["contains", "-", "--only", "present"]).ok(), "C:\\temp\\new\n");
    assert_eq!(with(&["get", "-"]).ok(), "C:\\\\temp\\\\new\t\n");
    assert_eq!(with(&["uniq"]).ok(), "");
    with(&["delete", "-"]);
    assert_eq!(with(&["contains", "-"]).ok(), "C:\\temp\\new\tabsent\n");
    with(&["load", "-"]);
    assert_eq!(with(&["uniq"]).ok(), "");
    assert_eq!(run(&["get", db, "C:\\temp\\new"]).ok(), "\n");
    assert_eq!(with(&["contains", "-", "--escaped"]).ok(), "C:\\temp\\new\tabsent\n");
    assert_eq!(with(&["uniq", "--escaped"]).ok(), "C:\\temp\\new\n");
    assert_eq!(with(&["get", "-", "--escaped"]).ok(), "C:\\temp\\new\t\n");
    assert_eq!(run(&["get", db, "C:\temp\new"]).ok(), "\n");
    with(&["delete", "-", "--escaped"]).ok();
    run(&["get", db, "C:\temp\new"]).fails(1);
    assert!(with(&["load", "-", "--escaped"]).ok().starts_with("1 line loaded"));
    assert_eq!(run(&["count", db]).ok(), "2\n");
}

#[test]
fn a_blank_line_is_the_same_for_every_command() {
    for (options, is_key) in [(&[][..], false), (&["--empty-key"], true)] {
        let store = temp_store();
        let with = |args: &[&str]| run_with(&[args, options].concat(), b"\n");
        let checked = |outcome: crate::tool::Outcome| {
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            assert_eq!(outcome.stderr.contains("1 blank line skipped"), !is_key, "{outcome:?}");
            String::from_utf8(outcome.stdout).unwrap()
        };
        assert_eq!(checked(with(&["uniq", &store.db])), if is_key { "\n" } else { "" });
        assert_eq!(checked(with(&["contains", &store.db, "-"])), if is_key { "\tpresent\n" } else { "" });
        assert_eq!(checked(with(&["get", &store.db, "-"])), if is_key { "\t\n" } else { "" });
        checked(with(&["delete", &store.db, "-"]));
        checked(with(&["load", &store.db, "-"]));
        assert_eq!(run(&["count", &store.db]).ok(), if is_key { "1\n" } else { "0\n" });
    }
}

#[test]
fn lines_and_arguments_have_escapes_only_with_escaped() {
    let store = temp_store();
    let db = &store.db;
    run(&["put", db, "a\\tb", "\\q"]).ok();
    assert_eq!(run(&["get", db, "a\\tb"]).ok(), "\\\\q\n");
    run(&["get", db, "a\\tb", "--escaped"]).fails(1);
    assert_eq!(run(&["get", db, "--escaped", "a\\\\t\\x62"]).ok(), "\\\\q\n");
    assert_eq!(run_with(&["get", db, "-", "--escaped"], b"a\\\\t\\x62\n").ok(), "a\\\\tb\t\\\\q\n");
    assert_eq!(run_with(&["get", db, "-", "--literal"], b"a\\tb\n").ok(), "a\\\\tb\t\\\\q\n");
    assert_eq!(run_with(&["get", db, "-"], b"a\\tb\n").ok(), "a\\\\tb\t\\\\q\n");
    let loaded = run_with(&["load", db, "-"], b"C:\\new\tdir\n");
    let note = "note: 1 line has backslashes, which were kept; --escaped reads what `scan` prints\n";
    assert!(loaded.code == Some(0) && loaded.stderr.ends_with(note), "{loaded:?}");
    assert!(run_with(&["load", db, "-", "--literal"], b"C:\\new\tdir\n").stderr.is_empty());
    assert_eq!(run(&["get", db, "C:\\new"]).ok(), "dir\n");
    run(&["delete", db, "C:\\new", "--literal"]).fails(2);
    run_with(&["delete", db, "-", "--literal"], b"C:\\new\n").ok();
    run(&["get", db, "C:\\new"]).fails(1);
    run_with(&["load", db, "-"], b"C:\\qux\n").ok();
    let message = run_with(&["load", db, "-", "--escaped"], b"C:\\qux\n").fails(2);
    assert!(message.contains("line 1: the backslash at byte 3 begins none of "), "{message}");
    assert!(
        message.contains("; without --escaped lines are used unchanged; 0 lines before it loaded"),
        "{message}"
    );
}

#[test]
fn a_blank_line_is_skipped_with_a_note_or_is_the_empty_key_on_request() {
    let store = temp_store();
    let load = |options: &[&str]| {
        let outcome = run_with(&[&["load", &store.db, "-"][..], options].concat(), b"a\n\nb\n\n");
        assert_eq!(outcome.code, Some(0));
        (String::from_utf8(outcome.stdout).unwrap(), outcome.stderr)
    };
    let (report, note) = load(&[]);
    assert!(report.starts_with("2 lines loaded, "), "{report}");
    assert_eq!(
        note,
        "sievedb: note: 2 blank lines skipped; --empty-key reads a blank line as the empty key\n"
    );
    assert!(load(&["--json"]).0.contains("\"blank_lines\":2"));
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t\nb\t\n");
    let (report, note) = load(&["--empty-key"]);
    assert!(report.starts_with("4 lines loaded, ") && note.is_empty(), "{report}");
    assert_eq!(run(&["scan", &store.db]).ok(), "\t\na\t\nb\t\n");
    let deleted = run_with(&["delete", &store.db, "-"], b"\nb\n");
    assert!(deleted.stderr.contains("1 blank line skipped"), "{deleted:?}");
    assert_eq!(run(&["scan", &store.db]).ok(), "\t\na\t\n");
    assert_eq!(run_with(&["contains", &store.db, "-", "--empty-key"], b"\n").ok(), "\tpresent\n");
    assert!(run_with(&["contains", &store.db, "-"], b"\n").stderr.contains("1 blank line skipped"));
}

#[test]
fn carriage_returns_are_refused_dropped_or_kept_but_never_unnoticed() {
    let store = temp_store();
    let lines = b"a\t1\r\nb\t2\r\n";
    let message = run_with(&["load", &store.db, "-"], lines).fails(2);
    assert!(
        message.contains("line 1: the line ends with a carriage return (CRLF): --crlf drops it"),
        "{message}"
    );
    assert_eq!(run(&["scan", &store.db]).ok(), "");
    let kept = run_with(&["load", &store.db, "-", "--literal"], lines);
    assert!(
        kept.stderr.contains("note: 2 lines end with a carriage return (CRLF), which was kept"),
        "{kept:?}"
    );
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t1\\x0d\nb\t2\\x0d\n");
    run_with(&["load", &store.db, "-", "--crlf"], lines).ok();
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t1\nb\t2\n");
    assert_eq!(run_with(&["get", &store.db, "-", "--crlf"], b"b\r\na\r\n").ok(), "b\t2\na\t1\n");
    for command in ["get", "contains", "delete", "uniq", "load"] {
        run_with(&[command, &store.db, "-"], b"a\r\n").fails(2);
    }
}

#[test]
fn many_keys_are_answered_in_input_order_and_absent_ones_are_left_out() {
    let store = temp_store();
    store.load(b"a\t1\nb\t2\nc\t\nt\\\\t\t4\n");
    let outcome = run_with(&["get", &store.db, "-"], b"c\nx\na\nb\nrest\na");
    assert_eq!(outcome.ok(), "c\t\na\t1\nb\t2\na\t1\n");
    assert_eq!(run_with(&["get", &store.db, "-"], b"").ok(), "");
    assert_eq!(run_with(&["get", &store.db, "-"], b"none\n").ok(), "");
    assert_eq!(run_with(&["get", &store.db, "-"], b"t\\t\n").ok(), "t\\\\t\t4\n");
    assert_eq!(run_with(&["get", &store.db, "-", "--escaped"], b"\\x61\nt\\\\t").ok(), "a\t1\nt\\\\t\t4\n");
}

#[test]
fn each_key_is_answered_before_the_next_is_sent() {
    let store = temp_store();
    store.load(b"a\t1\nb\t2\n");
    let mut get = Conversation::begin(&["get", &store.db, "-"]);
    for (keys, answer) in [("b\n", "b\t2"), ("none\na\n", "a\t1"), ("b\n\n", "b\t2")] {
        get.send(keys);
        assert_eq!(get.receive(), answer);
    }
    get.end();
}

#[test]
fn a_scan_keeps_to_its_bounds_in_both_directions() {
    let store = temp_store();
    store.load(b"a\na1\na2\nb\nb1\n\xff\n\xff\xff\n");
    let scan = |options: &[&str]| -> Vec<String> {
        let output = run(&[&["scan", &store.db][..], options].concat()).ok();
        output.lines().map(|line| line.trim_end_matches('\t').to_owned()).collect()
    };
    assert_eq!(scan(&[]), ["a", "a1", "a2", "b", "b1", "\\xff", "\\xff\\xff"]);
    assert_eq!(scan(&["--from", "a1", "--to", "b"]), ["a1", "a2"]);
    assert_eq!(scan(&["--to", "a1"]), ["a"]);
    assert_eq!(scan(&["--from", "b1", "--limit", "1"]), ["b1"]);
    assert_eq!(scan(&["--prefix", "a"]), ["a", "a1", "a2"]);
    assert_eq!(scan(&["--prefix", "a", "--from", "a2"]), ["a2"]);
    assert_eq!(scan(&["--prefix", "a", "--to", "a2", "--from", "0"]), ["a", "a1"]);
    assert_eq!(scan(&["--prefix", "b", "--to", "a2"]), [""; 0]);
    assert_eq!(scan(&["--from", "b", "--to", "a"]), [""; 0]);
    assert_eq!(scan(&["--prefix", "\\xff", "--escaped"]), ["\\xff", "\\xff\\xff"]);
    assert_eq!(scan(&["--reverse", "--limit", "2"]), ["\\xff\\xff", "\\xff"]);
    assert_eq!(scan(&["--reverse", "--prefix", "a", "--limit", "2"]), ["a2", "a1"]);
    assert_eq!(scan(&["--limit", "0"]), [""; 0]);
    assert_eq!(scan(&["--from", "-"])[0], "a");
}

#[test]
fn every_command_keeps_to_its_keyspace() {
    let store = temp_store();
    let db = &store.db;
    run(&["put", db, "k", "default"]).ok();
    run(&["put", db, "k", "users", "--keyspace", "users"]).creates("users");
    run_with(&["load", db, "-", "--keyspace", "lines"], b"k\tlines\nl\n").creates("lines");
    assert_eq!(run(&["get", db, "k"]).ok(), "default\n");
    assert_eq!(run(&["get", db, "k", "--keyspace", "default"]).ok(), "default\n");
    assert_eq!(run(&["get", db, "k", "--keyspace", "users"]).ok(), "users\n");
    assert_eq!(run_with(&["get", db, "-", "--keyspace", "lines"], b"l\nk\n").ok(), "l\t\nk\tlines\n");
    assert_eq!(run(&["scan", db, "--keyspace", "lines"]).ok(), "k\tlines\nl\t\n");
    run(&["get", db, "l"]).fails(1);
    assert_eq!(run(&["contains", db, "l", "--keyspace", "lines"]).ok(), "present\n");
    run(&["delete", db, "k", "--keyspace", "lines"]).ok();
    assert_eq!(run(&["scan", db, "--keyspace", "lines"]).ok(), "l\t\n");
    run_with(&["load", db, "-", "--keyspace", "lines"], b"k\tlines\n").ok();
    assert_eq!(run(&["get", db, "k"]).ok(), "default\n");

    assert!(
        run(&["compact", db, "--keyspace", "users"]).ok().contains("after   1 entry in 1 run and 1 table")
    );
    let stats = run(&["stats", db]).ok();
    assert_eq!(stats.matches("\nkeyspace   ").count(), 3, "{stats}");
    let stats = run(&["stats", db, "--keyspace", "users"]).ok();
    assert_eq!(stats.matches("\nkeyspace   ").count(), 1, "{stats}");
    assert!(
        stats.contains("\nkeyspace   users\nfilters    auto, 10 bits per key")
            && stats.contains("\nin tables  1 entry (0 tombstones), 6 B of keys and values"),
        "{stats}"
    );
    let stats = run(&["stats", db, "--keyspace", "lines"]).ok();
    assert!(stats.contains("\nin memory  4 entries, "), "{stats}");

    let commands = [
        &["get", db, "k"][..],
        &["contains", db, "k"],
        &["delete", db, "k"],
        &["scan", db],
        &["count", db],
        &["stats", db],
        &["compact", db],
        &["refilter", db],
    ];
    for command in commands {
        let message = run(&[command, &["--keyspace", "none"]].concat()).fails(3);
        assert!(
            message.contains("no keyspace none in ") && message.contains("are default, users, lines"),
            "{message}"
        );
    }
}

#[test]
fn compacting_leaves_one_run_and_the_same_entries() {
    let store = temp_store();
    for round in 0..3 {
        let lines: String = (0..500).map(|n| format!("key{n:04}\tround {round}\n")).collect();
        store.load(lines.as_bytes());
        let report = run(&["compact", &store.db]).ok();
        assert!(report.starts_with("before  "), "{report}");
        assert!(report.contains("\nafter   500 entries in 1 run and 1 table, "), "{report}");
    }
    let all: String = (0..500).map(|n| format!("key{n:04}\tround 2\n")).collect();
    assert_eq!(run(&["scan", &store.db]).ok(), all);
    let stats = run(&["stats", &store.db]).ok();
    assert!(stats.contains("in tables  500 entries (0 tombstones)"), "{stats}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_a_scan_quietly() {
    let store = temp_store();
    let lines: String = (0..50_000).map(|n| format!("key{n:06}\tvalue {n}\n")).collect();
    store.load(lines.as_bytes());
    for options in [&[][..], &["--reverse"]] {
        let mut child = command(&[&["scan", &store.db][..], options].concat()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}
