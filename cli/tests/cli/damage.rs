//! Damaged stores: exit code 3, "corrupt", file and offset; never a wrong answer.

use std::path::{Path, PathBuf};

use crate::tool::{TempStore, run, run_with, temp_store};

const KEYS: usize = 2000;

fn line(n: usize) -> String {
    format!("key{n:05}\tthe value of number {n}\n")
}

fn compacted() -> (TempStore, PathBuf) {
    let store = temp_store();
    store.load((0..KEYS).map(line).collect::<String>().as_bytes());
    run(&["compact", &store.db]).ok();
    let table = store.paths_of(".sst").pop().unwrap();
    (store, table)
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[track_caller]
fn names_the_damage(message: &str, file: &Path) {
    assert!(message.starts_with("sievedb: "), "{message}");
    let claim = format!("{} is corrupt at offset ", file.display());
    assert!(message.contains(&claim), "{message}");
    let offset = message.split("at offset ").nth(1).unwrap().split(':').next().unwrap();
    assert!(offset.parse::<u64>().is_ok(), "{message}");
}

#[test]
fn every_reader_of_a_damaged_block_reports_its_file_and_offset() {
    let (store, table) = compacted();
    flip(&table, 200);
    names_the_damage(&run(&["get", &store.db, "key00000"]).fails(3), &table);
    names_the_damage(&run_with(&["get", &store.db, "-"], b"key00000\n").fails(3), &table);
    names_the_damage(&run(&["scan", &store.db]).fails(3), &table);
    let last = line(KEYS - 1);
    assert_eq!(run(&["scan", &store.db, "--reverse", "--limit", "1"]).ok(), last);
    assert!(run(&["stats", &store.db]).ok().contains("2,000 entries"));

    let scan = run(&["scan", &store.db, "--reverse"]);
    assert_eq!(scan.code, Some(3));
    names_the_damage(&scan.stderr, &table);
    let printed = String::from_utf8(scan.stdout).unwrap();
    assert!(printed.lines().count() > KEYS / 2);
    assert!((0..KEYS).rev().map(line).collect::<String>().starts_with(&printed));

    let before = std::fs::read(&table).unwrap();
    run(&["put", &store.db, "key00000", "new"]).ok();
    names_the_damage(&run(&["compact", &store.db]).fails(3), &table);
    assert!(std::fs::read(&table).unwrap() == before);
    assert_eq!(run(&["get", &store.db, "key00000"]).ok(), "new\n");
}

#[test]
fn a_command_that_finds_damage_names_the_remedies_once() {
    let (store, table) = compacted();
    flip(&table, 200);
    let db = &store.db;
    let note = format!(
        "sievedb: note: `sievedb verify {db}` lists all damage; restore a backup, or save the rest with \
         `sievedb repair {db} --into NEW`\n"
    );
    for args in [&["get", db, "key00000"][..], &["scan", db], &["uniq", db]] {
        let outcome = run_with(args, b"key00001\n");
        let (first, rest) = outcome.stderr.split_once('\n').unwrap();
        names_the_damage(first, &table);
        assert_eq!((outcome.code, rest), (Some(3), &note[..]), "{args:?}");
    }
    let remedy = note.split_once("; ").unwrap().1;
    assert_eq!(run(&["verify", db]).stderr, format!("sievedb: 1 piece of damage in {db}; {remedy}"));
    let odd = format!("{db}'s copy");
    std::fs::rename(db, &odd).unwrap();
    let message = run(&["get", &odd, "key00000"]).fails(3);
    let quoted = format!("'{db}'\\''s copy'");
    assert!(message.ends_with(&note.replace(db, &quoted)), "{message}");
}

#[test]
fn a_flipped_bit_anywhere_in_a_table_causes_no_wrong_answer() {
    let (store, table) = compacted();
    let good = std::fs::read(&table).unwrap();
    let all: String = (0..KEYS).map(line).collect();
    let mut damaged = 0;
    for offset in (0..good.len()).step_by(good.len() / 40) {
        flip(&table, offset);
        let scan = run(&["scan", &store.db]);
        match scan.code {
            Some(0) => assert!(scan.stdout == all.as_bytes(), "at {offset}"),
            Some(3) => {
                names_the_damage(&scan.stderr, &table);
                assert!(all.as_bytes().starts_with(&scan.stdout), "at {offset}");
                damaged += 1;
            }
            _ => panic!("at {offset}: {scan:?}"),
        }
        std::fs::write(&table, &good).unwrap();
    }
    assert!(damaged > 20, "{damaged}");
}

#[test]
fn a_damaged_filter_is_reported_in_a_note_and_answers_stay_right() {
    let (store, table) = compacted();
    let good = std::fs::read(&table).unwrap();
    // The filter block starts on a boundary of 4 KiB with its magic.
    let is_filter = |at: &usize| good[*at..].starts_with(b"\x89SVFLT\r\n");
    let start = (4096..good.len()).step_by(4096).find(is_filter).expect("the table has a filter block");
    flip(&table, start + 1000);
    let present = run(&["get", &store.db, "key00007"]);
    assert_eq!((present.code, &present.stdout[..]), (Some(0), &b"the value of number 7\n"[..]));
    assert!(present.stderr.contains("note: 1 filter cannot be used"), "{present:?}");
    let absent = run(&["get", &store.db, "key00007x"]).fails(1);
    assert!(
        absent.contains("absent: key00007x") && absent.contains("note: 1 filter cannot be used"),
        "{absent}"
    );
}

#[test]
fn a_missing_table_and_a_missing_manifest_are_reported() {
    let (store, table) = compacted();
    let good = std::fs::read(&table).unwrap();
    std::fs::remove_file(&table).unwrap();
    names_the_damage(&run(&["get", &store.db, "key00000"]).fails(3), &table);
    std::fs::write(&table, good).unwrap();
    assert_eq!(run(&["get", &store.db, "key00000"]).ok(), "the value of number 0\n");
    let current = Path::new(&store.db).join("CURRENT");
    std::fs::remove_file(&current).unwrap();
    for args in [vec!["scan", &store.db], vec!["put", &store.db, "k", "v"], vec!["compact", &store.db]] {
        names_the_damage(&run(&args).fails(3), &current);
    }
}

#[test]
fn damage_in_a_closed_log_is_corruption() {
    let store = temp_store();
    store.load((0..KEYS).map(line).collect::<String>().as_bytes());
    let log = store.paths_of(".wal").pop().unwrap();
    flip(&log, 10_000);
    names_the_damage(&run(&["scan", &store.db]).fails(3), &log);
}

#[test]
fn a_torn_tail_that_was_never_synced_is_reported_and_the_rest_is_read() {
    let (store, copy) = (temp_store(), temp_store());
    store.load(b"a\t1\n");
    // The log has no close record, and ends within a record.
    let db = sievedb::Db::open(&store.db).unwrap();
    db.put("b", "2").unwrap();
    db.put("c", "3".repeat(100)).unwrap();
    std::fs::create_dir(&copy.db).unwrap();
    let files = store.files();
    let newest_log = files.keys().rfind(|name| name.ends_with(".wal")).cloned();
    for (name, content) in files {
        let cut = if Some(&name) == newest_log.as_ref() { content.len() - 20 } else { content.len() };
        std::fs::write(Path::new(&copy.db).join(name), &content[..cut]).unwrap();
    }
    drop(db);
    let scan = run(&["scan", &copy.db]);
    assert_eq!((scan.code, &scan.stdout[..]), (Some(0), &b"a\t1\nb\t2\n"[..]), "{scan:?}");
    assert!(
        scan.stderr.contains("note: the last ") && scan.stderr.contains(".wal, from offset "),
        "{scan:?}"
    );
    assert!(String::from_utf8(run(&["stats", &copy.db]).stdout).unwrap().contains("\ntorn       "));
}
