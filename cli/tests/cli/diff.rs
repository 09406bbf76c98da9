use crate::dump::dump;
use crate::tool::{TempStore, run, temp_store};

fn lines(range: std::ops::Range<u32>, changed: u32) -> String {
    range.map(|key| format!("key{key:05}\t{}\n", if key == changed { 0 } else { key })).collect()
}

struct Exchange {
    /// The second machine's output after it wrote cells.
    told: Vec<String>,
    short: Vec<String>,
    found: String,
}

fn exchange(one: &TempStore, two: &TempStore, options: &[&str], wanted: &str, json: bool) -> Exchange {
    let file = |name: String| one.folder.path().join(name).to_str().unwrap().to_owned();
    let format: &[&str] = if json { &["--json"] } else { &[] };
    let size = file("size".into());
    assert_eq!(run(&[&["diff", &one.db, "--write-size", &size], format].concat()).ok(), "");
    let mut exchange = Exchange { told: Vec::new(), short: Vec::new(), found: String::new() };
    let mut list: Vec<String> = ["diff", &one.db, "--write-wanted", wanted]
        .into_iter()
        .chain(format.iter().copied())
        .map(String::from)
        .collect();
    let mut options: Vec<String> = options.iter().map(ToString::to_string).collect();
    loop {
        let cells = file(format!("cells{}", exchange.told.len()));
        let ask: Vec<&str> = options.iter().map(String::as_str).collect();
        let write = ["diff", &two.db, "--size", &size, "--write-cells", &cells];
        exchange.told.push(run(&[&write[..], &ask[..], format].concat()).ok());
        list.extend(["--cells".into(), cells]);
        let outcome = run(&list);
        if outcome.code == Some(1) {
            exchange.found = outcome.differs();
            return exchange;
        }
        let short = outcome.fails(3);
        let (_, asked) = short.split_once("--from ").expect("it says for which cells to ask");
        options = format!("--from {asked}").split_whitespace().map(String::from).collect();
        exchange.short.push(short);
    }
}

#[test]
fn a_diff_of_two_stores_lists_missing_and_different_keys() {
    let (one, two) = (temp_store(), temp_store());
    one.load(lines(0..2000, 9999).as_bytes());
    two.load(lines(3..2002, 1000).as_bytes());
    let only = "-\tkey00000\n-\tkey00001\n-\tkey00002\n+\tkey02000\n+\tkey02001\n";
    let keys = run(&["diff", &one.db, &two.db]).differs();
    assert!(
        keys.starts_with(&format!("{only}# 3 only in the first, 2 only in the second, 0 differ; ")),
        "{keys}"
    );
    let values = run(&["diff", &one.db, &two.db, "--values"]).differs();
    assert!(values.starts_with(&format!("{only}~\tkey01000\n# 3 only in the first, 2 ")), "{values}");
    assert!(run(&["diff", &one.db, &one.db]).ok().starts_with("# 0 only in the first, 0 only in the second"));
    run(&["diff", &one.db]).fails(2);
}

#[test]
fn a_diff_in_json_names_the_side_of_each_key_and_ends_with_the_numbers() {
    let (one, two) = (temp_store(), temp_store());
    one.load(b"a\t1\n\xff\t1\nsame\t1\n");
    two.load(b"b\t1\nsame\t2\n");
    let found = run(&["diff", &one.db, &two.db, "--values", "--json"]).differs();
    let (keys, last) = found.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        keys,
        "{\"key\":\"a\",\"keyspace\":\"default\",\"side\":\"first\"}\n\
         {\"key_base64\":\"/w==\",\"keyspace\":\"default\",\"side\":\"first\"}\n\
         {\"key\":\"b\",\"keyspace\":\"default\",\"side\":\"second\"}\n\
         {\"key\":\"same\",\"keyspace\":\"default\",\"side\":\"both\"}"
    );
    let numbers: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        ["only_first", "only_second", "differ"].map(|name| numbers[name].as_u64()),
        [Some(2), Some(1), Some(1)]
    );
    assert!(numbers["exchanged_bytes"].as_u64() > Some(100) && numbers["rounds"].as_u64() > Some(0));

    let wanted = one.folder.path().join("wanted").to_str().unwrap().to_owned();
    let exchange = exchange(&one, &two, &[], &wanted, true);
    let told = &exchange.told[0];
    assert!(told.starts_with("{\"estimate\":") && told.ends_with("}\n"), "{told}");
    let listed = exchange.found;
    assert!(listed.ends_with("{\"only_first\":2,\"only_second\":1}\n"), "{listed}");
    assert_eq!(
        run(&["diff", &two.db, "--wanted", &wanted, "--json"]).differs(),
        "{\"key\":\"b\",\"side\":\"second\"}\n"
    );
}

#[test]
fn all_keyspaces_are_compared_unless_one_is_chosen() {
    let (one, two) = (temp_store(), temp_store());
    for store in [&one, &two] {
        store.load(b"k\t1\n");
        run(&["put", &store.db, "k", "v", "--keyspace", "both"]).creates("both");
    }
    run(&["put", &two.db, "l", "v", "--keyspace", "both"]).ok();
    run(&["put", &one.db, "k", "v", "--keyspace", "mine"]).creates("mine");
    run(&["put", &two.db, "k", "v", "--keyspace", "yours\t"]).creates("yours\\t");
    run(&["put", &two.db, "l", "v", "--keyspace", "yours\t"]).ok();
    let found = run(&["diff", &one.db, &two.db]).differs();
    let expected = "# keyspace default\n# keyspace both\n+\tl\n\
                    # keyspace mine is only in the first, with 1 key\n\
                    # keyspace yours\\t is only in the second, with 2 keys\n\
                    # 1 only in the first, 3 only in the second, 0 differ; ";
    assert!(found.starts_with(expected), "{found}");
    let found = run(&["diff", &one.db, &two.db, "--json"]).differs();
    let (key, numbers) = found.split_once('\n').unwrap();
    assert_eq!(key, "{\"key\":\"l\",\"keyspace\":\"both\",\"side\":\"second\"}");
    let numbers: serde_json::Value = serde_json::from_str(numbers).unwrap();
    assert_eq!(
        [&numbers["only_first"], &numbers["only_second"], &numbers["keyspaces"]["both"]["only_second"]],
        [1, 3, 1]
    );
    assert_eq!(numbers["keyspaces"]["default"]["only_second"], 0);
    assert_eq!(numbers["keyspaces_only_first"], serde_json::json!({"mine": 1}));
    assert_eq!(numbers["keyspaces_only_second"], serde_json::json!({"yours\t": 2}));
    let named = run(&["diff", &one.db, &two.db, "--keyspace", "both"]).differs();
    assert!(named.starts_with("+\tl\n# 0 only in the first, 1 only in the second"), "{named}");

    let note = "sievedb: note: 2 keyspaces are left out: both, mine; --keyspace names one\n";
    let (size, digest) = (one.folder.path().join("size"), one.folder.path().join("digest"));
    for args in [
        &["scan", &one.db][..],
        &["count", &one.db],
        &["scan", &one.db, "--json"],
        &["diff", &one.db, "--write-size", size.to_str().unwrap()],
        &["digest", &one.db, "--output", digest.to_str().unwrap()],
    ] {
        let outcome = run(args);
        assert_eq!((outcome.code, &outcome.stderr[..]), (Some(0), note), "{args:?}");
    }
    assert_eq!(run(&["scan", &one.db, "--keyspace", "default"]).ok(), "k\t1\n");
}

#[test]
fn a_rate_that_is_none_is_wrong_usage() {
    let store = temp_store();
    store.load(b"k\n");
    let digest = store.folder.path().join("digest");
    for rate in ["0", "1", "2", "-1", "nan", "inf", "x"] {
        run(&["digest", &store.db, "--output", digest.to_str().unwrap(), "--rate", rate]).fails(2);
    }
    assert!(!digest.exists());
}

#[test]
fn a_diff_through_files_needs_a_second_round_if_the_cells_fall_short() {
    let (one, two) = (temp_store(), temp_store());
    one.load(lines(0..2000, 9999).as_bytes());
    two.load(lines(30..2050, 9999).as_bytes());
    let file = |name: &str| one.folder.path().join(name).to_str().unwrap().to_owned();
    let [size, wanted] = ["size", "wanted"].map(file);
    let by_estimate = exchange(&one, &two, &[], &wanted, false);
    let told = &by_estimate.told[0];
    assert!(told.starts_with("# about ") && told.ends_with(" differences\n"), "{told}");
    let found = by_estimate.found;
    assert!(
        found.ends_with("# 30 only here, 50 only there\n") && found.starts_with("-\tkey00000\n"),
        "{found}"
    );
    let named = run(&["diff", &two.db, "--wanted", &wanted]).differs();
    assert_eq!((named.lines().count(), named.lines().next()), (50, Some("+\tkey02000")));

    let in_rounds = exchange(&one, &two, &["--count", "20"], &wanted, false);
    let short = &in_rounds.short[0];
    assert!(short.contains("20 cells are too few") && short.contains("--from 20 --count "), "{short}");
    assert_eq!(in_rounds.found, found);
    let wrong = run(&["diff", &one.db, "--cells", &size]).fails(3);
    assert!(wrong.contains("sketch kind"), "{wrong}");
}

/// The first cells suffice with a probability of 95 %.
#[test]
fn a_diff_of_values_through_files_lists_different_keys_on_both_sides() {
    let (one, two) = (temp_store(), temp_store());
    one.load(lines(0..2000, 9999).as_bytes());
    two.load(lines(1..2001, 1000).as_bytes());
    let file = |name: &str| one.folder.path().join(name).to_str().unwrap().to_owned();
    let [size, cells, wanted] = ["size", "cells", "wanted"].map(file);
    run(&["diff", &one.db, "--values", "--write-size", &size]).ok();
    run(&["diff", &two.db, "--size", &size, "--write-cells", &cells, "--count", "100"]).ok();
    let found = run(&["diff", &one.db, "--cells", &cells, "--write-wanted", &wanted]).differs();
    assert_eq!(found, "-\tkey00000\n-\tkey01000\n# 2 entries only here, 2 entries only there\n");
    assert_eq!(run(&["diff", &two.db, "--wanted", &wanted]).differs(), "+\tkey02000\n~\tkey01000\n");
}

/// Recipients of a digest could choose keys that the store's filters recognize.
#[test]
fn a_digest_does_not_have_the_secret_seed_of_its_store() {
    let store = temp_store();
    store.load(lines(0..500, 9999).as_bytes());
    let manifest = std::fs::read_dir(&store.db).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifest.into_iter().find(|path| path.to_string_lossy().contains("MANIFEST")).unwrap();
    let told = dump(&["--secrets", manifest.to_str().unwrap()]).ok();
    let behind = told.split_once("hash seed").unwrap().1;
    let digits = behind.split(|letter: char| !letter.is_ascii_hexdigit()).find(|digits| digits.len() == 16);
    let seed = u64::from_str_radix(digits.unwrap(), 16).unwrap();
    let file = store.folder.path().join("digest");
    run(&["digest", &store.db, "--output", file.to_str().unwrap()]).ok();
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.windows(8).all(|window| window != seed.to_le_bytes() && window != seed.to_be_bytes()));
}

#[test]
fn a_digest_is_written_and_its_number_of_keys_is_printed() {
    let store = temp_store();
    store.load(lines(0..500, 9999).as_bytes());
    let file = store.folder.path().join("digest");
    let told = run(&["digest", &store.db, "--output", file.to_str().unwrap(), "--rate", "0.001"]).ok();
    assert!(told.contains("keys              500\n") && told.contains("predicted rate"), "{told}");
    assert!(std::fs::metadata(&file).unwrap().len() < 2000);
    run(&["digest", &store.db, "--output", file.to_str().unwrap(), "--rate", "1"]).fails(2);

    let told = run(&["digest", &store.db, "--output", file.to_str().unwrap(), "--json"]).ok();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((told["keys"].as_u64(), told["keyspace"].as_str()), (Some(500), Some("default")));
    assert_eq!(told["bytes"].as_u64(), Some(std::fs::metadata(&file).unwrap().len()));
    assert!(told["rate"].as_f64().is_some_and(|rate| rate > 0.001 && rate <= 0.01));
}
