//! What a Unix user expects: signals, closed and full streams, no terminal.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::tool::{Place, command, place, run};

/// A `load` that has written `lines` and waits for more.
fn loading(place: &Place, lines: &str) -> Child {
    let mut child = command(&["load", &place.db, "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let log_bytes = || -> u64 {
        let files = std::fs::read_dir(&place.db).into_iter().flatten().map(|file| file.unwrap());
        let logs = files.filter(|file| file.file_name().to_str().unwrap().ends_with(".wal"));
        logs.map(|log| log.metadata().map_or(0, |metadata| metadata.len())).sum()
    };
    while log_bytes() < lines.len() as u64 {
        assert!(Instant::now() < until, "what was sent is not written");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn lines(count: u64) -> String {
    (0..count).map(|n| format!("key{n:06}\tvalue\n")).collect()
}

#[test]
fn an_interrupted_load_says_how_far_it_came_and_keeps_that() {
    let place = place();
    let mut child = loading(&place, &lines(1000));
    // Kept open: the end of the input would end the command as well.
    let _stdin = child.stdin.take();
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "sievedb: interrupted; 1,000 lines loaded\n");
    assert!(output.stdout.is_empty());
    assert_eq!(run(&["scan", &place.db]).ok(), lines(1000));
}

#[test]
fn a_load_that_is_killed_keeps_what_it_had_written() {
    for name in ["-TERM", "-KILL"] {
        let place = place();
        let mut child = loading(&place, &lines(1000));
        let _stdin = child.stdin.take();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (None, 0));
        assert_eq!(run(&["scan", &place.db]).ok(), lines(1000));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let place = place();
    place.load(lines(10).as_bytes());
    for args in [
        &["scan", &place.db][..],
        &["get", &place.db, "key000001"],
        &["contains", &place.db, "key000001"],
        &["stats", &place.db],
        &["compact", &place.db],
        &["completion", "bash"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(args).stdout(full).spawn().unwrap().wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {message}");
        assert!(message.starts_with("sievedb: cannot write to standard output: "), "{message}");
    }
    // A message that cannot be written changes nothing of how a command ends.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let absent = command(&["get", &place.db, "none"]).stderr(full).status().unwrap();
    assert_eq!(absent.code(), Some(1));
}

#[test]
fn closed_streams_are_an_empty_input_and_an_output_that_goes_nowhere() {
    let place = place();
    let shell = |script: &str| {
        let script = script.replace("sievedb", env!("CARGO_BIN_EXE_sievedb")).replace("DB", &place.db);
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        (output.status.code(), output.stdout.len(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(shell("sievedb put DB key value <&- >&- 2>&-"), (Some(0), 0, String::new()));
    assert_eq!(shell("sievedb get DB - <&-"), (Some(0), 0, String::new()));
    assert_eq!(shell("sievedb get DB key >&-"), (Some(0), 0, String::new()));
    assert_eq!(shell("sievedb get DB none 2>&-"), (Some(1), 0, String::new()));
    let (code, printed, message) = shell("sievedb load DB - <&-");
    assert!(code == Some(0) && printed > 0 && message.is_empty());
}

#[test]
fn without_a_terminal_nothing_is_drawn_however_long_it_takes() {
    let place = place();
    let mut child = loading(&place, &lines(1000));
    // Longer than a bar waits before it shows itself.
    std::thread::sleep(Duration::from_millis(500));
    child.stdin.as_mut().unwrap().write_all(b"one\tmore\n").unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("1,001 lines loaded, ") && !printed.contains('\x1b'), "{printed}");
}
