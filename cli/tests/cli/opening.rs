//! Which commands create a store, which write to one, and how they refuse.

use std::path::Path;

use crate::tool::{Conversation, run, run_with, temp_store};

const READING: [&str; 6] = ["get", "contains", "scan", "count", "keyspaces", "stats"];

fn on_existing(db: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["get", db, "k"],
        vec!["get", db, "-"],
        vec!["contains", db, "k"],
        vec!["delete", db, "k"],
        vec!["delete", db, "-"],
        vec!["scan", db],
        vec!["count", db],
        vec!["keyspaces", db],
        vec!["stats", db],
        vec!["compact", db],
        vec!["refilter", db],
    ]
}

#[test]
fn only_load_put_and_demo_create_a_store() {
    let store = temp_store();
    for args in on_existing(&store.db) {
        let message = run(&args).fails(3);
        assert!(message.starts_with("sievedb: there is no store in "), "{message}");
        assert!(!Path::new(&store.db).exists(), "{args:?}");
    }
    std::fs::create_dir(&store.db).unwrap();
    for args in on_existing(&store.db) {
        let message = run(&args).fails(3);
        assert!(message.starts_with("sievedb: there is no store in "), "{message}");
        assert!(store.files().is_empty(), "{args:?}");
    }
    store.load(b"k\tv\n");
    assert_eq!(run(&["get", &store.db, "k"]).ok(), "v\n");
}

#[test]
fn a_file_instead_of_a_directory_is_refused_and_left_alone() {
    let store = temp_store();
    std::fs::write(&store.db, "a file").unwrap();
    let lines = store.folder.path().join("lines");
    std::fs::write(&lines, "k\tv\n").unwrap();
    let lines = lines.to_str().unwrap();
    let writing = [
        vec!["put", &store.db, "k", "v"],
        vec!["load", &store.db, lines],
        vec!["demo", &store.db, "--from", lines],
    ];
    for args in on_existing(&store.db).into_iter().chain(writing) {
        let message = run(&args).fails(3);
        assert!(message.contains(&store.db), "{message}");
        assert_eq!(std::fs::read(&store.db).unwrap(), b"a file");
    }
}

#[test]
fn the_parent_of_a_new_store_is_not_created() {
    let store = temp_store();
    let parent = store.folder.path().join("mistyped");
    let db = parent.join("x.db");
    let (db, input) = (db.to_str().unwrap(), b"k\tv\n");
    let expected = format!("sievedb: cannot create {db}: there is no directory {}\n", parent.display());
    store.load(input);
    let path = |name: &str| store.folder.path().join(name).to_str().unwrap().to_owned();
    let (repository, lines) = (path("repo"), path("lines"));
    run(&["backup", &store.db, &repository]).ok();
    std::fs::write(&lines, input).unwrap();
    for args in [
        &["uniq", db][..],
        &["load", db, "-"],
        &["put", db, "k", "v"],
        &["repair", &store.db, "--into", db],
        &["checkpoint", &store.db, db],
        &["restore", &repository, db],
        &["demo", db, "--from", &lines],
        &["man", db],
    ] {
        assert_eq!(run_with(args, input).fails(3), expected, "{args:?}");
        assert!(!parent.exists());
    }
    std::fs::create_dir(&parent).unwrap();
    run(&["put", db, "k", "v"]).ok();
}

#[test]
fn wrong_usage_is_refused_with_2_before_a_store_is_created() {
    let store = temp_store();
    let db = &store.db;
    let long = "k".repeat(65_537);
    for args in [
        vec![],
        vec!["frobnicate"],
        vec!["get", db],
        vec!["put", db, "k"],
        vec!["put", db, "k", "v", "w"],
        vec!["put", db, "k", "v", "--keyspace", ""],
        vec!["put", db, "--escaped", "k\\", "v"],
        vec!["put", db, "--escaped", "k", "\\x0"],
        vec!["put", db, &long, "v"],
        vec!["scan", db, "--limit", "-1"],
        vec!["get", db, "-", "--raw"],
        vec!["get", db, "k", "--raw", "--json"],
        vec!["contains", db],
        vec!["contains", db, "k", "--only", "absent"],
        vec!["delete", db, "k", "--json"],
        vec!["get", db, "k", "--crlf"],
        vec!["contains", db, "k", "--empty-key"],
        vec!["count", db, "--escaped", "--prefix", "\\y"],
        vec!["delete", db, &long],
        vec!["get", db, "--escaped", "\\y"],
        vec!["scan", db, "--escaped", "--prefix", "\\y"],
        vec!["load", db, "-", "--escaped", "--literal"],
        vec!["load", db, "-", "--escaped", "--from-json"],
        vec!["digest", db, "--output", "never", "--rate", "0"],
        vec!["digest", db, "--output", "never", "--rate", "1"],
        vec!["digest", db, "--output", "never", "--rate", "-1"],
        vec!["digest", db, "--output", "never", "--rate", "nan"],
        vec!["uniq", db, "--new-journal"],
    ] {
        let message = run(&args).fails(2);
        assert!(!message.is_empty());
        assert!(!Path::new(db).exists(), "{message}");
    }
    for args in [vec!["load", db, "no such file"], vec!["load", db, store.folder.path().to_str().unwrap()]] {
        let message = run(&args).fails(3);
        assert!(message.starts_with("sievedb: cannot read "), "{message}");
        assert!(!Path::new(db).exists(), "{message}");
    }
}

#[test]
fn help_and_version_exit_with_0() {
    for args in [vec!["--help"], vec!["help", "load"], vec!["get", "--help"], vec!["--version"]] {
        assert!(!run(&args).ok().is_empty());
    }
}

#[test]
fn a_line_that_cannot_be_loaded_is_named_and_earlier_lines_are_loaded() {
    let store = temp_store();
    let outcome = run_with(&["load", &store.db, "-", "--escaped"], b"a\t1\nb\t\\x62\nc\\q\t3\nd\t4\n");
    let message = outcome.fails(2);
    assert!(message.contains("standard input, line 3: the backslash at byte 2 "), "{message}");
    assert!(message.ends_with("; 2 lines before it loaded\n"), "{message}");
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t1\nb\tb\n");

    let mut input = b"e\t5\n".to_vec();
    input.extend([b'k'; 65_537]);
    let message = run_with(&["load", &store.db, "-"], &input).fails(2);
    let named =
        format!("line 2: the key \"{}\"... has 65537 bytes, over the limit of 65536; 1 line", "k".repeat(40));
    assert!(message.contains(&named), "{message}");
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t1\nb\tb\ne\t5\n");

    let message = run_with(&["get", &store.db, "-", "--escaped"], b"\\\\\n\\\n");
    assert_eq!(message.code, Some(2));
    assert!(message.stderr.contains("standard input, line 2: "), "{message:?}");
}

#[test]
fn reading_commands_write_nothing_at_all() {
    let store = temp_store();
    store.load(b"a\t1\nb\t2\n");
    run(&["compact", &store.db]).ok();
    store.load(b"c\t3\n");
    std::fs::write(Path::new(&store.db).join("CURRENT.tmp"), "half").unwrap();
    std::fs::write(Path::new(&store.db).join("notes.txt"), "mine").unwrap();
    let before = store.files();
    assert!(
        before.keys().any(|name| name.ends_with(".sst")) && before.keys().any(|name| name.ends_with(".wal"))
    );
    run(&["get", &store.db, "a"]).ok();
    run(&["get", &store.db, "none"]).fails(1);
    assert_eq!(run_with(&["get", &store.db, "-"], b"a\nc\n").ok(), "a\t1\nc\t3\n");
    assert_eq!(run(&["scan", &store.db, "--reverse"]).ok(), "c\t3\nb\t2\na\t1\n");
    assert!(run(&["stats", &store.db]).ok().contains("ignored    notes.txt: "));
    assert!(store.files() == before);
}

/// As on a read-only medium.
#[cfg(unix)]
#[test]
fn reading_commands_work_in_a_directory_without_write_permission() {
    use std::os::unix::fs::PermissionsExt;
    let store = temp_store();
    store.load(b"a\t1\n");
    let allow = |mode| std::fs::set_permissions(&store.db, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o500);
    assert_eq!(run(&["get", &store.db, "a"]).ok(), "1\n");
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t1\n");
    allow(0o700);
}

#[test]
fn a_store_in_use_is_read_as_it_is_at_that_moment_and_refused_to_a_second_writer() {
    let store = temp_store();
    store.load(b"a\t1\n");
    let mut reader = Conversation::begin(&["get", &store.db, "-"]);
    reader.send("a\n");
    assert_eq!(reader.receive(), "a\t1");
    let before = run(&["get", &store.db, "a"]);
    assert!(before.stderr.is_empty(), "nobody writes: {:?}", before.stderr);
    assert_eq!(before.ok(), "1\n");

    let db = sievedb::Db::open(&store.db).unwrap();
    db.put("b", "2").unwrap();
    let seqno = 2;
    for args in on_existing(&store.db) {
        let output = run(&args);
        let is_read = READING.contains(&args[0]);
        let message = output.stderr;
        let expected = if is_read { "; the store is in use" } else { "is in use by another process" };
        assert!(message.contains(expected), "{args:?}: {message}");
        assert_eq!(output.code == Some(3), !is_read, "{args:?}: {message}");
        assert!(
            !is_read || message.contains(&format!("as of sequence number {seqno}, 2")),
            "{args:?}: {message}"
        );
    }
    assert_eq!(run(&["get", &store.db, "b"]).stdout, b"2\n");
    reader.send("a\n");
    assert_eq!(reader.receive(), "a\t1");
    reader.end();
    db.close().unwrap();
    assert_eq!(run(&["put", &store.db, "b", "2"]).ok(), "");
}

#[test]
fn a_checkpoint_of_a_store_in_use_is_a_store_and_is_made_once() {
    let store = temp_store();
    store.load(b"a\t1\n");
    let db = sievedb::Db::open(&store.db).unwrap();
    db.put("b", "2").unwrap();
    let copy = store.folder.path().join("copy");
    let copy = copy.to_str().unwrap();
    let made = run(&["checkpoint", &store.db, copy]);
    assert!(made.stderr.contains("as of sequence number 2, 2"), "{}", made.stderr);
    let line = format!("{copy} is a checkpoint as of sequence number 2\n");
    assert_eq!((made.code, &made.stdout[..]), (Some(0), line.as_bytes()));
    db.put("b", "3").unwrap();
    assert_eq!(run(&["scan", copy]).ok(), "a\t1\nb\t2\n");
    run(&["verify", copy]).ok();
    let again = run(&["checkpoint", &store.db, copy]).fails(3);
    let why = format!("cannot create {copy}: it exists; a checkpoint needs a new directory");
    assert!(again.contains(&why), "{again}");
    let inside = format!("{}/copy", store.db);
    run(&["checkpoint", &store.db, &inside]).fails(2);
    let none = store.folder.path().join("none/copy");
    run(&["checkpoint", &store.db, none.to_str().unwrap()]).fails(3);
    let json = run(&["checkpoint", &store.db, &format!("{copy}2"), "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["as_of"]["seqno"], &json["as_of"]["in_use"]), (&3.into(), &true.into()));
    let mut names: Vec<_> =
        std::fs::read_dir(store.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy", "copy2", "db"]);
}
