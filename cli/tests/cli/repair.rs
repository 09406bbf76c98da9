use std::path::Path;

use crate::dump::dump;
use crate::tool::{TempStore, run, temp_store};

fn filled() -> (TempStore, String) {
    let store = temp_store();
    let lines: String = (0..2000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    store.load(lines.as_bytes());
    run(&["put", &store.db, "ada", "1815", "--keyspace", "users"]).creates("users");
    run(&["compact", &store.db]).ok();
    let into = format!("{}.new", store.db);
    (store, into)
}

fn flip(path: &Path, offsets: &[usize]) {
    let mut bytes = std::fs::read(path).unwrap();
    offsets.iter().for_each(|&offset| bytes[offset] ^= 1);
    std::fs::write(path, bytes).unwrap();
}

fn largest_table(store: &TempStore) -> std::path::PathBuf {
    let tables = store.paths_of(".sst").into_iter();
    tables.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn a_store_without_damage_is_copied_and_stays_as_it_was() {
    let (store, into) = filled();
    let before = store.files();
    let report = run(&["repair", &store.db, "--into", &into]).ok();
    for line in [
        "manifest   whole\n",
        "kept       2,000 keys in keyspace default\n",
        "kept       1 key in keyspace users\n",
        "complete   all data are certain\n",
    ] {
        assert!(report.contains(line), "{report}");
    }
    assert!(store.files() == before);
    let scan = |db: &str| run(&["scan", db, "--keyspace", "default"]).ok();
    assert_eq!(scan(&into), scan(&store.db));
    assert_eq!(run(&["get", &into, "ada", "--keyspace", "users"]).ok(), "1815\n");
    let refused = run(&["repair", &store.db, "--into", &into]).fails(2);
    assert!(refused.contains("is not empty"), "{refused}");
    run(&["repair", &store.db, "--into", &format!("{}/new", store.db)]).fails(2);
    assert!(store.files() == before);
}

#[test]
fn lost_data_are_listed_as_ranges_of_keys_as_text_and_json() {
    let (store, into) = filled();
    let table = largest_table(&store);
    flip(&table, &[200, 9000]);
    let outcome = run(&["repair", &store.db, "--into", &into]);
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(outcome.stderr.ends_with("some of it is lost\n"), "{}", outcome.stderr);
    let printed = String::from_utf8(outcome.stdout).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    assert!(printed.contains(&format!("lost       {name}: ")), "{printed}");
    assert!(
        printed.contains(" of keyspace default, among\n           keys from key00000 before key00"),
        "{printed}"
    );
    assert!(printed.contains("\n           keys after key00"), "{printed}");
    let kept =
        run(&["count", &into, "--keyspace", "default"]).ok().trim().replace(',', "").parse::<u64>().unwrap();
    assert!((1000..2000).contains(&kept), "{kept}");

    let json_into = format!("{into}.json");
    let outcome = run(&["repair", &store.db, "--into", &json_into, "--json"]);
    assert_eq!(outcome.code, Some(3));
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!((&report["complete"], &report["manifest"]), (&false.into(), &"whole".into()));
    let lost = &report["lost_entries"][0];
    assert_eq!((&lost["file"], &lost["keyspace"]), (&name.into(), &"default".into()));
    assert_eq!(lost["entries"].as_u64().unwrap() + kept, 2000);
    assert_eq!(lost["ranges"][0]["from_key"], "key00000");
    assert_eq!(report["keyspaces"][0]["keys"], kept);
}

#[test]
fn without_a_manifest_everything_is_in_the_doubtful_keyspaces() {
    let (store, into) = filled();
    let manifest = store.files().keys().find(|name| name.starts_with("MANIFEST")).unwrap().clone();
    std::fs::remove_file(Path::new(&store.db).join(manifest)).unwrap();
    std::fs::remove_file(Path::new(&store.db).join("CURRENT")).unwrap();
    let tree = dump(&["tree", &store.db]);
    assert_eq!(tree.code, Some(3), "{tree:?}");
    let drawn = String::from_utf8(tree.stdout).unwrap();
    for part in ["manifest   missing\n", "of keyspace default", "of keyspace users", ".wal "] {
        assert!(drawn.contains(part), "{drawn}");
    }
    assert!(tree.stderr.contains("is missing, and there is no manifest"), "{}", tree.stderr);
    let outcome = run(&["repair", &store.db, "--into", &into]);
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    let printed = String::from_utf8(outcome.stdout).unwrap();
    for line in [
        "manifest   missing; every entry is doubtful\n",
        "doubtful   2,000 keys in keyspace doubtful\n",
        "doubtful   1 key in keyspace doubtful:users\n",
        "           key00000 to key01999: 2,000 keys\n",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    assert_eq!(run(&["get", &into, "key00007", "--keyspace", "doubtful"]).ok(), "value 7\n");
    assert_eq!(run(&["get", &into, "ada", "--keyspace", "doubtful:users"]).ok(), "1815\n");
}

#[test]
fn long_keys_are_printed_by_their_beginning_and_length() {
    let store = temp_store();
    let long = "\\x07".repeat(1041);
    store.load(format!("{long}\tvalue\n").as_bytes());
    run(&["compact", &store.db]).ok();
    flip(&largest_table(&store), &[200]);
    // Bounds in tables have at most 1,024 bytes.
    let key = format!(" {}... (1,0", "\\x07".repeat(40));
    for args in [&["verify", &store.db][..], &["repair", &store.db, "--into", &format!("{}.new", store.db)]] {
        let printed = String::from_utf8(run(args).stdout).unwrap();
        assert!(printed.contains(&key) && printed.lines().all(|line| line.len() < 400), "{printed}");
    }
}
