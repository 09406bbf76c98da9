use std::process::{Command, Stdio};

use crate::tool::{Outcome, run, run_with, temp_store};

/// `sievedb` is the program and `DB` a store, with 700 MB of address space.
#[cfg(target_os = "linux")]
fn with_little_memory(script: &str, db: &str) -> Outcome {
    let script = script.replace("sievedb ", &format!("{} ", env!("CARGO_BIN_EXE_sievedb"))).replace("DB", db);
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v 700000; {script}")])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Outcome { code: output.status.code(), stdout: output.stdout, stderr }
}

#[cfg(target_os = "linux")]
#[test]
fn a_line_without_end_is_refused_as_soon_as_it_is_too_long() {
    let store = temp_store();
    run(&["put", &store.db, "k", "v"]).ok();
    for command in ["contains DB -", "get DB -", "delete DB -", "uniq DB", "load DB -"] {
        for (option, limit) in [("", "65536"), ("--escaped", "262144")] {
            let script = format!("head -c 3000000000 /dev/zero | sievedb {command} {option}");
            let message = with_little_memory(&script, &store.db).fails(2);
            assert!(message.contains(&format!(" has more than {limit} bytes")), "{command}: {message}");
        }
    }
    let message =
        with_little_memory("head -c 3000000000 /dev/zero | sievedb load DB - --from-json", &store.db)
            .fails(2);
    assert!(message.contains("is not a JSON object"), "{message}");
    let message =
        with_little_memory("head -c 3000000000 /dev/zero | sievedb uniq DB --key 1", &store.db).fails(2);
    assert!(message.contains(" has more than 16777216 bytes"), "{message}");
    for options in ["--cells /dev/zero", "--wanted /dev/zero", "--size /dev/zero --write-cells DB.cells"] {
        with_little_memory(&format!("sievedb diff DB {options}"), &store.db).fails(3);
    }
    assert_eq!(run(&["scan", &store.db]).ok(), "k\tv\n");
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_runs_out_is_a_failure_and_no_crash() {
    let store = temp_store();
    let value = "(printf 'k\\t'; head -c 260000000 /dev/zero | tr '\\0' v; echo)";
    let mut failed = 0;
    for limit in [150_000, 300_000, 450_000, 600_000, 700_000] {
        let script = format!("ulimit -v {limit}; {value} | sievedb load DB -");
        let outcome = with_little_memory(&script, &store.db);
        match outcome.code {
            Some(0) => {}
            Some(3) => {
                failed += 1;
                assert!(outcome.stderr.contains("memory"), "{limit}: {outcome:?}");
            }
            _ => panic!("{limit}: {outcome:?}"),
        }
    }
    assert!(failed > 0, "there is memory for everything");
    run(&["verify", &store.db]);
}

#[test]
fn json_output_is_refused_as_lines_and_read_back_on_request() {
    let (one, two) = (temp_store(), temp_store());
    one.load(b"a\t1\nb\\t\\\\\t\\xff\\n\n\\xff\\x00\t\n\xc3\xbc\t\"\n\t\n");
    let printed = run(&["scan", &one.db, "--json"]).ok();
    for options in [&[][..], &["--escaped"]] {
        let load = [&["load", &two.db, "-"][..], options].concat();
        let message = run_with(&load, printed.as_bytes()).fails(2);
        assert!(message.contains("line 1: ") && message.contains("--from-json reads it"), "{message}");
    }
    assert_eq!(run(&["count", &two.db]).ok(), "0\n");
    assert!(run_with(&["load", &two.db, "-", "--from-json"], printed.as_bytes()).ok().starts_with("5 lines"));
    assert_eq!(run(&["scan", &two.db, "--json"]).ok(), printed);
    assert_eq!(run(&["scan", &two.db]).ok(), run(&["scan", &one.db]).ok());

    let message =
        run_with(&["load", &two.db, "-", "--from-json"], b"{\"key\":\"k\",\"value\":null}\n").fails(2);
    assert!(message.contains("line 1: the object has no value"), "{message}");
    run_with(&["load", &two.db, "-", "--from-json"], b"k\tv\n").fails(2);
    run_with(&["load", &two.db, "-", "--literal"], b"{\"key\":\"k\",\"value\":\"v\"}\n").ok();
    assert_eq!(run(&["get", &two.db, "{\"key\":\"k\",\"value\":\"v\"}"]).ok(), "\n");
}

#[test]
fn no_command_silently_takes_the_output_of_another_for_keys() {
    let store = temp_store();
    store.load(b"a\t1\nb\t2\n");
    let db = &store.db;
    let scanned = run(&["scan", db, "--json"]).ok();
    let answered = run_with(&["contains", db, "-", "--json"], b"a\nb\n").ok();
    let got = run_with(&["get", db, "-", "--json"], b"a\nnone\n").ok();
    let other = temp_store();
    run(&["put", &other.db, "z", ""]).ok();
    let differing = run(&["diff", db, &other.db, "--json"]).differs();
    for printed in [&scanned, &answered, &got, &differing] {
        for command in ["contains", "get", "delete", "load"] {
            let message = run_with(&[command, db, "-"], printed.as_bytes()).fails(2);
            assert!(message.contains("line 1: ") && message.contains("was printed with --json"), "{message}");
        }
    }
    let scanned = run(&["scan", db]).ok();
    for command in ["contains", "get", "delete"] {
        let outcome = run_with(&[command, db, "-"], scanned.as_bytes());
        let note = "2 lines have tabs, which are part of the key; `cut -f1` takes the keys";
        assert!(outcome.code == Some(0) && outcome.stderr.contains(note), "{outcome:?}");
    }
    assert_eq!(run(&["scan", db]).ok(), scanned);
}
