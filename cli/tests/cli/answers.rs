//! Asking, removing, and results for programs.

use crate::tool::{Conversation, place, run, run_with};

#[test]
fn contains_prints_its_answer_and_exits_with_1_for_no() {
    let place = place();
    let db = &place.db;
    place.load(b"apple\t1\npear\t2\n");
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
        conversation.say(&format!("{key}\n"));
        assert_eq!(conversation.hear(), answer);
    }
    conversation.end();
}

#[test]
fn deleted_keys_are_gone_whether_they_were_there_or_not() {
    let place = place();
    let db = &place.db;
    place.load(b"a\t1\nb\t2\nc\t3\nd\t4\n\xff\t5\n");
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
fn results_in_json_hold_text_as_text_and_other_bytes_in_base64() {
    let place = place();
    let db = &place.db;
    let summary: serde_json::Value = serde_json::from_slice(
        &run_with(&["load", db, "-", "--json"], b"a\t1\n\xff\t\xfe\n\xc3\xbc\t\"\n").stdout,
    )
    .unwrap();
    assert_eq!((&summary["lines"], &summary["data_bytes"]), (&3.into(), &7.into()));

    assert_eq!(run(&["get", db, "a", "--json"]).ok(), "{\"key\":\"a\",\"value\":\"1\"}\n");
    let absent = run(&["get", db, "b", "--json"]);
    assert_eq!((absent.code, &absent.stdout[..]), (Some(1), &b"{\"key\":\"b\",\"value\":null}\n"[..]));
    assert_eq!(
        run_with(&["get", db, "-", "--json"], b"b\n\xff\n").ok(),
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
fn shells_and_man_get_what_they_want() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completion", shell]).ok();
        for command in ["demo", "load", "contains", "delete", "completion"] {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
    let place = place();
    let pages = place.folder.path().join("man/man1");
    assert_eq!(run(&["man", pages.to_str().unwrap()]).ok(), "");
    let page = std::fs::read_to_string(pages.join("sievedb-scan.1")).unwrap();
    assert!(page.contains(".TH sievedb-scan") && page.contains("prefix"), "{page}");
    assert!(page.contains(".SH \"EXAMPLES\"\n.nf\n  sievedb scan my.db \\-\\-prefix user/"), "{page}");
    assert!(std::fs::read_to_string(pages.join("sievedb.1")).unwrap().contains("contains"));
    assert!(pages.join("sievedb-dump.1").exists());
    assert!(run(&["completion", "bash", "--program", "sievedb-dump"]).ok().contains("summary"));
    run(&["completion", "bash", "--keyspace", "k"]).fails(2);
}
