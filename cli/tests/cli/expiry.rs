//! Keyspaces whose entries expire: the options that set them, and the commands that show them.

use serde_json::Value;

use crate::tool::{run, run_with, temp_store};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(run(arguments).ok().lines().next().unwrap()).unwrap()
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
    run_with(&["uniq", &store.db, "--keyspace", "seen", "--ttl", "1d", "--ttl-buckets", "1"], b"a\nb\n").ok();
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
}
