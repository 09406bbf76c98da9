use serde_json::Value;

use crate::dump::dump;
use crate::tool::{run, run_with, temp_store};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(run(arguments).ok().lines().next().unwrap()).unwrap()
}

#[test]
fn uniq_sets_what_restarts_the_time_to_live() {
    let store = temp_store();
    let options = || json(&["keyspaces", &store.db, "--json"])["options"]["refresh"].clone();
    let uniq = |more: &[&str]| run_with(&[&["uniq", &store.db], more].concat(), b"a\n");
    uniq(&["--ttl", "1h"]).ok();
    assert_eq!(options(), "on_write");
    let seen = uniq(&["--ttl", "1h", "--refresh", "on-sight"]);
    assert_eq!((seen.code, seen.stdout.is_empty(), options()), (Some(0), true, "on_sight".into()));
    uniq(&["--ttl", "1h"]).ok();
    assert_eq!(options(), "on_sight", "it is kept");
    for bad in [&["--ttl", "1h", "--refresh", "sometimes"][..], &["--refresh", "on-sight"]] {
        assert_eq!(uniq(bad).code, Some(2), "{bad:?}");
    }
}

#[test]
fn uniq_and_load_set_a_time_to_live_that_the_keyspace_keeps() {
    let store = temp_store();
    let day = ["uniq", &store.db, "--ttl", "24h", "--ttl-buckets", "12"];
    assert_eq!(run_with(&day, b"a\nb\na\n").ok(), "a\nb\n");
    assert_eq!(run_with(&["uniq", &store.db], b"b\nc\n").ok(), "c\n");
    let options = || json(&["keyspaces", &store.db, "--json"])["options"].clone();
    assert_eq!((&options()["ttl"]["secs"], &options()["ttl_buckets"]), (&86_400.into(), &12.into()));
    let loaded = run_with(&["load", &store.db, "-", "--ttl", "90s"], b"d\tvalue\n");
    assert!(loaded.code == Some(0) && String::from_utf8_lossy(&loaded.stdout).contains("1 line loaded"));
    assert!(
        loaded.stderr.contains("the entries that default has already now expire after 90s"),
        "{}",
        loaded.stderr
    );
    assert_eq!((&options()["ttl"]["secs"], &options()["ttl_buckets"]), (&90.into(), &12.into()));
    for bad in [&["--ttl", "0s"][..], &["--ttl", "1"], &["--ttl", "11y"], &["--ttl-buckets", "3"]] {
        let failed = run_with(&[&["uniq", &store.db], bad].concat(), b"x\n");
        assert_eq!((failed.code, failed.stdout.is_empty()), (Some(2), true), "{bad:?}");
    }
    for bad in ["0", "129"] {
        let arguments = ["uniq", &store.db, "--ttl", "1h", "--ttl-buckets", bad];
        assert_eq!(run_with(&arguments, b"x\n").code, Some(2), "{bad}");
    }
    assert_eq!(run(&["get", &store.db, "x"]).code, Some(1), "nothing was written");
}

#[test]
fn stats_keyspaces_and_the_dump_show_buckets_and_the_next_expiry() {
    let store = temp_store();
    run_with(&["uniq", &store.db, "--keyspace", "seen", "--ttl", "1d", "--ttl-buckets", "1"], b"a\nb\n")
        .creates("seen");
    let lines = run(&["keyspaces", &store.db]).ok();
    assert!(lines.lines().next().unwrap().ends_with("ttl     keyspace"), "{lines}");
    assert!(lines.lines().any(|line| line.ends_with("  1d      seen")), "{lines}");
    run(&["compact", &store.db, "--keyspace", "seen"]).ok();
    let stats = json(&["stats", &store.db, "--keyspace", "seen", "--json"]);
    let expiry = &stats["keyspaces"][0]["expiry"];
    let bucket = &expiry["buckets"][0];
    let [begins, ends, expires] = ["begins", "ends", "expires"].map(|time| bucket[time].as_u64().unwrap());
    let day = 86_400_000;
    assert!(begins < ends && ends - begins <= day && ends % day == 0, "{bucket}");
    assert_eq!((expires, &expiry["next_expiry"]), (ends + day, &expires.into()));
    assert_eq!(
        (&bucket["entries"], &bucket["runs"], &bucket["is_hidden"]),
        (&2.into(), &1.into(), &false.into())
    );
    let text = run(&["stats", &store.db, "--keyspace", "seen"]).ok();
    assert!(text.contains("options    ttl 1d in 1 buckets, block_bytes "), "{text}");
    assert!(text.contains("  hidden below sequence number 0; next expiry 2"), "{text}");

    let tree = dump(&["tree", &store.db]).ok();
    assert!(tree.lines().all(|line| line.len() <= 80), "{tree}");
    let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["after 1d, in 1 buckets; hidden below sequence number 0; next expiry 2", "bucket from 2"] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
    let tables = dump(&["tree", "--json", &store.db]).ok();
    let table = tables.lines().find(|line| line.contains("bucket_begins_ms")).unwrap();
    let table: Value = serde_json::from_str(table).unwrap();
    assert_eq!(
        [&table["bucket_begins_ms"], &table["bucket_expires_ms"], &table["next_expiry_ms"]],
        [&bucket["begins"], &expires.into(), &expires.into()]
    );

    let text = run(&["verify", &store.db]).ok();
    let seen = "1 bucket of time in tables, hidden below sequence number 0; next expiry 2";
    assert!(text.contains(&format!("\nexpiry     keyspace seen: {seen}")), "{text}");
    assert_eq!(&json(&["verify", &store.db, "--json"])["expiry"]["seen"], expiry);
    for is_json in [true, false] {
        let into = format!("{}-{is_json}", store.db);
        let arguments = ["repair", &store.db, "--into", &into, "--json"];
        let text = run(&arguments[..4 + usize::from(is_json)]).ok();
        if is_json {
            let report: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let keyspaces = report["keyspaces"].as_array().unwrap();
            let seen = keyspaces.iter().find(|keyspace| keyspace["name"] == "seen").unwrap();
            assert_eq!(seen["expiry"]["next_expiry"], expiry["next_expiry"]);
        } else {
            assert!(text.contains(&format!(" in keyspace seen\n           {seen}")), "{text}");
        }
    }

    let page = format!("{}-report.html", store.db);
    run(&["report", &store.db, "-o", &page]).ok();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("written from 2") && page.contains("expires 2"), "{page}");
}

#[cfg(target_os = "linux")]
#[test]
fn lines_that_expired_while_the_store_was_closed_are_new_to_the_first_call() {
    let stores: Vec<_> = (0..8).map(|_| temp_store()).collect();
    let tagged = |db: &str| {
        let arguments = ["uniq", db, "--ttl", "1s", "--ttl-buckets", "1", "--tag"];
        run_with(&arguments, b"line\n").ok()
    };
    stores.iter().for_each(|store| assert_eq!(tagged(&store.db), "new\tline\n"));
    // The time to live and a bucket. The clock is trusted: the machine has been up for a bucket.
    std::thread::sleep(std::time::Duration::from_secs(3));
    stores.iter().for_each(|store| assert_eq!(tagged(&store.db), "new\tline\n"));
}
