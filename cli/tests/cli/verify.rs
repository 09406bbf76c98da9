use std::path::Path;

use crate::tool::{run, temp_store};

#[test]
fn a_store_without_damage_is_called_sound() {
    let store = temp_store();
    let lines: String = (0..2000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    store.load(lines.as_bytes());
    run(&["compact", &store.db]).ok();
    store.load(b"later\t1\n");
    std::fs::write(Path::new(&store.db).join("notes.txt"), "mine").unwrap();
    let before = store.files();
    let report = run(&["verify", &store.db]).ok();
    for line in [
        "logs       1 log, 1 batch\n",
        "tables     1 table, 2,000 entries, ",
        "filters    1 filter probed with every key\n",
        "ignored    notes.txt: not a name of a store's file\n",
        "sound      no damage found\n",
    ] {
        assert!(report.contains(line), "{report}");
    }
    assert!(store.files() == before);
    run(&["verify", &store.db, "--keyspace", "default"]).fails(2);
}

#[test]
fn all_damage_is_listed_with_file_offset_and_keys_as_text_and_json() {
    let store = temp_store();
    let lines: String = (0..2000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    store.load(lines.as_bytes());
    run(&["compact", &store.db]).ok();
    let table = store.paths_of(".sst").pop().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[200] ^= 1;
    bytes[9000] ^= 1;
    std::fs::write(&table, &bytes).unwrap();
    let manifest = store.files().keys().find(|name| name.starts_with("MANIFEST")).unwrap().clone();
    let manifest_path = Path::new(&store.db).join(&manifest);
    let good = std::fs::read(&manifest_path).unwrap();

    let name = table.file_name().unwrap().to_str().unwrap().to_owned();
    let outcome = run(&["verify", &store.db]);
    assert_eq!(outcome.code, Some(3));
    let verdict = format!("sievedb: 2 pieces of damage in {}; restore a backup, or ", store.db);
    assert!(outcome.stderr.starts_with(&verdict), "{}", outcome.stderr);
    let printed = String::from_utf8(outcome.stdout).unwrap();
    assert_eq!(printed.matches(&format!("damage     {name} at offset ")).count(), 2, "{printed}");
    assert!(printed.contains("           concerns keys key00000 to key00"), "{printed}");
    assert!(printed.contains(" of keyspace default\n"), "{printed}");

    let mut bad = good.clone();
    bad[100] ^= 1;
    std::fs::write(&manifest_path, bad).unwrap();
    run(&["get", &store.db, "key00000"]).fails(3);
    let outcome = run(&["verify", &store.db, "--json"]);
    assert_eq!(outcome.code, Some(3));
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(report["sound"], false);
    let files: Vec<_> = report["damage"].as_array().unwrap().iter().map(|damage| &damage["file"]).collect();
    assert_eq!(files, [&manifest, &name, &name]);
    assert_eq!(report["damage"][1]["first_key"], "key00000");
    assert!(report["damage"][1]["offset"].is_u64());
}
