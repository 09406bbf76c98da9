//! What goes in comes out: keys, values, order, escapes, keyspaces.

use std::io::Read;

use crate::tool::{Conversation, command, place, run, run_with};

#[test]
fn what_is_put_is_what_get_prints() {
    let place = place();
    let db = &place.db;
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
fn an_absent_key_prints_a_word_on_stderr_only_and_exits_with_1() {
    let place = place();
    run(&["put", &place.db, "planet", "Saturn"]).ok();
    for key in ["moon", "plane", "planets", ""] {
        let message = run(&["get", &place.db, key]).fails(1);
        assert_eq!(message, format!("sievedb: absent: {key}\n"));
    }
}

#[test]
fn lines_are_split_at_the_first_tab_and_any_bytes_are_kept() {
    let place = place();
    let report = place.load(b"a\tb\tc\nalone\n\nwindows\tline\r\n\xff\0\t\xfe\nlast\tone");
    assert!(report.starts_with("6 lines loaded, 31 B of keys and values, in "), "{report}");
    assert!(report.ends_with(" keys a second\n"), "{report}");
    let all = "\t\na\tb\\tc\nalone\t\nlast\tone\nwindows\tline\\x0d\n\\xff\\x00\t\\xfe\n";
    assert_eq!(run(&["scan", &place.db]).ok(), all);
    assert_eq!(run(&["get", &place.db, ""]).ok(), "\n");
    assert_eq!(run(&["get", &place.db, "windows", "--raw"]).ok(), "line\r");
    let raw = run(&["get", &place.db, "--escaped", "\\xff\\x00", "--raw"]);
    assert_eq!((raw.code, &raw.stdout[..]), (Some(0), &b"\xfe"[..]));
}

#[test]
fn a_later_line_replaces_an_earlier_one_and_a_file_is_read_like_standard_input() {
    let place = place();
    let file = place.folder.path().join("lines");
    std::fs::write(&file, "k\t1\nk\t2\n").unwrap();
    run(&["load", &place.db, file.to_str().unwrap()]).ok();
    assert_eq!(run(&["scan", &place.db]).ok(), "k\t2\n");
    place.load(b"");
    assert_eq!(run(&["scan", &place.db]).ok(), "k\t2\n");
}

#[test]
fn what_scan_prints_load_reads_back_whatever_the_bytes() {
    let (one, two) = (place(), place());
    let mut input = Vec::new();
    for high in 0..=255u8 {
        let line = [high, b'\\', b'x', b'4', b'1', high.wrapping_mul(7), b'\t', 255 - high, b'\\'];
        input.extend(line.iter().filter(|byte| **byte != b'\n'));
        input.push(b'\n');
    }
    one.load(&input);
    run(&["put", &one.db, "--escaped", "new\\nline\\tand\\\\", "\\n\\t\\\\\\x00\\xFf"]).ok();
    let printed = run(&["scan", &one.db]).ok();
    assert!(printed.contains("new\\nline\\tand\\\\\t\\n\\t\\\\\\x00\\xff\n"), "{printed}");
    assert!(printed.bytes().all(|byte| (0x20..=0x7e).contains(&byte) || b"\t\n".contains(&byte)));
    assert!(printed.lines().all(|line| line.matches('\t').count() == 1));
    run_with(&["load", &two.db, "-", "--escaped"], printed.as_bytes()).ok();
    assert_eq!(run(&["scan", &two.db]).ok(), printed);
    assert_eq!(printed.lines().count(), 257);
}

#[test]
fn input_is_literal_unless_escaped_is_given() {
    let place = place();
    run(&["put", &place.db, "a\\tb", "\\q"]).ok();
    assert_eq!(run(&["get", &place.db, "a\\tb"]).ok(), "\\\\q\n");
    run(&["get", &place.db, "a\\tb", "--escaped"]).fails(1);
    assert_eq!(run(&["get", &place.db, "--escaped", "a\\\\t\\x62"]).ok(), "\\\\q\n");
}

#[test]
fn many_keys_are_answered_in_the_order_they_are_asked_and_absent_ones_left_out() {
    let place = place();
    place.load(b"a\t1\nb\t2\nc\t\nt\\t\t4\n");
    let outcome = run_with(&["get", &place.db, "-"], b"c\nx\na\n\nb\na\r\na");
    assert_eq!(outcome.ok(), "c\t\na\t1\nb\t2\na\t1\n");
    assert_eq!(run_with(&["get", &place.db, "-"], b"").ok(), "");
    assert_eq!(run_with(&["get", &place.db, "-"], b"none\n").ok(), "");
    assert_eq!(run_with(&["get", &place.db, "-"], b"t\\t\n").ok(), "t\\\\t\t4\n");
    assert_eq!(run_with(&["get", &place.db, "-", "--escaped"], b"\\x61\nt\\\\t").ok(), "a\t1\nt\\\\t\t4\n");
}

#[test]
fn each_key_is_answered_before_the_next_is_asked() {
    let place = place();
    place.load(b"a\t1\nb\t2\n");
    let mut get = Conversation::begin(&["get", &place.db, "-"]);
    for (keys, answer) in [("b\n", "b\t2"), ("none\na\n", "a\t1")] {
        get.say(keys);
        assert_eq!(get.hear(), answer);
    }
    get.end();
}

#[test]
fn a_scan_keeps_to_its_bounds_in_both_directions() {
    let place = place();
    place.load(b"a\na1\na2\nb\nb1\n\xff\n\xff\xff\n");
    let scan = |options: &[&str]| -> Vec<String> {
        let output = run(&[&["scan", &place.db][..], options].concat()).ok();
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
fn a_keyspace_is_a_world_of_its_own_for_every_command() {
    let place = place();
    let db = &place.db;
    run(&["put", db, "k", "default"]).ok();
    run(&["put", db, "k", "users", "--keyspace", "users"]).ok();
    run_with(&["load", db, "-", "--keyspace", "lines"], b"k\tlines\nl\n").ok();
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
        stats.contains("\nkeyspace   users\nin tables  1 entry (0 tombstones), 6 B of keys and values"),
        "{stats}"
    );
    let stats = run(&["stats", db, "--keyspace", "lines"]).ok();
    assert!(stats.contains("\nin memory  4 entries, "), "{stats}");

    let commands = [
        &["get", db, "k"][..],
        &["contains", db, "k"],
        &["delete", db, "k"],
        &["scan", db],
        &["stats", db],
        &["compact", db],
    ];
    for command in commands {
        let message = run(&[command, &["--keyspace", "none"]].concat()).fails(3);
        assert!(
            message.contains("no keyspace none in ") && message.contains("default, users, lines"),
            "{message}"
        );
    }
}

#[test]
fn compacting_leaves_one_run_and_the_same_entries() {
    let place = place();
    for round in 0..3 {
        let lines: String = (0..500).map(|n| format!("key{n:04}\tround {round}\n")).collect();
        place.load(lines.as_bytes());
        let report = run(&["compact", &place.db]).ok();
        assert!(report.starts_with("before  "), "{report}");
        assert!(report.contains("\nafter   500 entries in 1 run and 1 table, "), "{report}");
    }
    let all: String = (0..500).map(|n| format!("key{n:04}\tround 2\n")).collect();
    assert_eq!(run(&["scan", &place.db]).ok(), all);
    let stats = run(&["stats", &place.db]).ok();
    assert!(stats.contains("in tables  500 entries (0 tombstones)"), "{stats}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_a_scan_without_a_word() {
    let place = place();
    let lines: String = (0..50_000).map(|n| format!("key{n:06}\tvalue {n}\n")).collect();
    place.load(lines.as_bytes());
    for options in [&[][..], &["--reverse"]] {
        let mut child = command(&[&["scan", &place.db][..], options].concat()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}
