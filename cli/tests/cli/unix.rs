//! Signals, closed and full streams, terminals.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty;
use rustix::termios::Winsize;

#[cfg(target_os = "linux")]
use crate::situations::Disk;
use crate::tool::{TempStore, command, dump_command, run, run_with, temp_store};

/// Has written `lines` and waits for more.
fn loading(store: &TempStore, lines: &str) -> Child {
    let mut child = command(&["load", &store.db, "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while log_bytes(store) < lines.len() as u64 {
        assert!(Instant::now() < until, "what was sent is not written");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn log_bytes(store: &TempStore) -> u64 {
    let files = std::fs::read_dir(&store.db).into_iter().flatten().map(|file| file.unwrap());
    let logs = files.filter(|file| file.file_name().to_str().unwrap().ends_with(".wal"));
    logs.map(|log| log.metadata().map_or(0, |metadata| metadata.len())).sum()
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn lines(count: u64) -> String {
    (0..count).map(|n| format!("key{n:06}\tvalue\n")).collect()
}

#[test]
fn a_signal_ends_a_load_that_prints_how_many_lines_it_kept() {
    for (name, code, word) in [("-INT", 130, "interrupted"), ("-TERM", 143, "terminated")] {
        let store = temp_store();
        let mut child = loading(&store, &lines(1000));
        let _stdin = child.stdin.take();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, format!("sievedb: {word}; 1,000 lines loaded\n"));
        assert!(output.stdout.is_empty());
        assert_eq!(run(&["scan", &store.db]).ok(), lines(1000));
    }
}

/// The input continues, and is synced once a minute.
#[test]
fn a_signal_ends_uniq_when_every_line_that_it_stored_is_printed() {
    for (name, code, word) in [("-INT", 130, "interrupted"), ("-TERM", 143, "terminated")] {
        let store = temp_store();
        let out = store.folder.path().join("out");
        let args = ["uniq", &store.db, "--sync-every", "60000"];
        let stdout = File::create(&out).unwrap();
        let mut child = command(&args).stdin(Stdio::piped()).stdout(stdout).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feed = std::thread::spawn(move || {
            let mut sent = 0;
            loop {
                let more: String = (sent..sent + 50_000).map(|n| format!("line {n}\n")).collect();
                if stdin.write_all(more.as_bytes()).is_err() {
                    return;
                }
                sent += 50_000;
            }
        });
        let until = Instant::now() + Duration::from_secs(60);
        while std::fs::metadata(&out).unwrap().len() == 0 {
            assert!(Instant::now() < until, "nothing is printed");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Until lines are stored but not printed.
        std::thread::sleep(Duration::from_millis(100));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        feed.join().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let printed = std::fs::read_to_string(out).unwrap();
        let count = printed.lines().count();
        assert!(count > 0 && printed.lines().eq((0..count).map(|n| format!("line {n}"))));
        assert_eq!(run(&["count", &store.db]).ok().trim(), count.to_string(), "{name}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with(&format!("sievedb: {word} after ")), "{message}");
        assert_eq!(message.replace(|c: char| !c.is_ascii_digit(), ""), count.to_string());
    }
}

#[test]
fn a_signal_ends_uniq_that_waits_for_its_input() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let store = temp_store();
        let mut child = command(&["uniq", &store.db]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"a\nb\na\nunfinished").unwrap();
        let mut printed = [0; 4];
        child.stdout.as_mut().unwrap().read_exact(&mut printed).unwrap();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &printed[..], output.stdout.len()),
            (Some(code), &b"a\nb\n"[..], 0)
        );
        assert!(String::from_utf8(output.stderr).unwrap().ends_with(" after 3 lines\n"));
        assert_eq!(run(&["scan", &store.db]).ok(), "a\t\nb\t\n");
    }
}

/// Waits for the end of a command whose input stays open.
fn ends(mut child: Child) -> (Option<i32>, String) {
    let _stdin = child.stdin.take();
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it waits for its input");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn uniq_counts_the_lines_without_a_key_however_it_ends_before_the_end_of_its_input() {
    let input = "lone\n".repeat(20) + "a b\n";
    let sum = "sievedb: standard input: 20 lines without a valid key are neither stored nor printed\n";
    for (end, expected) in [("-TERM", 143), ("full", 3), ("journal", 3), ("input", 3), ("reader", 2)] {
        let store = temp_store();
        let mut args = vec!["uniq", &store.db, "--key", "2"];
        args.extend(if ["journal", "input"].contains(&end) { &["--journal", "/dev/full"][..] } else { &[] });
        let mut uniq = command(&args);
        if end == "full" {
            uniq.stdout(File::options().write(true).open("/dev/full").unwrap());
        }
        let mut child = uniq.stdin(Stdio::piped()).spawn().unwrap();
        if end == "reader" {
            drop(child.stdout.take());
        }
        child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
        if end == "input" {
            drop(child.stdin.take());
        }
        if end == "-TERM" {
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
            signal(&child, end);
        }
        let (code, message) = ends(child);
        assert_eq!((code, message.matches(sum).count()), (Some(expected), 1), "{end}: {message}");
    }
}

fn reader_exited(printed: &str) -> String {
    format!(
        "sievedb: note: the reader of the output exited: {printed} printed, and count as seen even if it did not read \
         them; later new lines are not stored, and are new in the next run\n"
    )
}

#[cfg(target_os = "linux")]
#[test]
fn uniq_ends_when_it_cannot_print_although_its_input_goes_on() {
    let store = temp_store();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = command(&["uniq", &store.db]).stdin(Stdio::piped()).stdout(full).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"a\n").unwrap();
    let message = "sievedb: cannot write to standard output: No space left on device (os error 28); \
                   0 lines are printed; later new lines are not stored, and are new in the next run\n";
    assert_eq!(ends(child), (Some(3), message.to_owned()));

    let mut child = command(&["uniq", &store.db]).stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    child.stdin.as_mut().unwrap().write_all(b"b\n").unwrap();
    assert_eq!(ends(child), (Some(0), reader_exited("0 lines are")));

    let args = ["uniq", &store.db, "--journal", "/dev/full"];
    let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"c\n").unwrap();
    let (code, message) = ends(child);
    assert_eq!(code, Some(3), "{message}");
    assert!(message.starts_with("sievedb: cannot write to the journal /dev/full: "), "{message}");
    assert_eq!(run(&["scan", &store.db]).ok(), "");

    let input = store.folder.path().join("input");
    std::fs::write(&input, "d\nd\n").unwrap();
    let message = "sievedb: cannot write to standard output: No space left on device (os error 28); \
                   no line is removed from the store\n";
    for option in ["--count", "--seen"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let args = ["uniq", &store.db, input.to_str().unwrap(), option];
        let child = command(&args).stdout(full).spawn().unwrap();
        assert_eq!(ends(child), (Some(3), message.to_owned()), "{option}");
        assert_eq!(run(&["scan", &store.db]).ok(), "d\t\n");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn uniq_stores_nothing_if_standard_output_is_closed() {
    let store = temp_store();
    let uniq = |rest: &str| {
        let script = format!("echo a | {} uniq {} {rest}", env!("CARGO_BIN_EXE_sievedb"), store.db);
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for closed in [">&-", "1<>/dev/null", "--tag >&-", "--seen >&-"] {
        let (code, message) = uniq(closed);
        assert!(code == Some(3) && message.contains("standard output is closed"), "{closed}: {message}");
        assert!(!std::path::Path::new(&store.db).exists(), "{closed}");
    }
    let help = run(&["uniq", "--help"]).ok();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("/dev/null opened for reading"), "{help}");
    for open in ["--count >&-", ">/dev/null", "--dry-run >&-"] {
        assert_eq!(uniq(open), (Some(0), String::new()), "{open}");
    }
    assert_eq!(run(&["count", &store.db]).ok(), "1\n");
}

/// The disk has no page for more lines of the output, and none for the log, whose last page has space for the lines, but not
/// for their removal.
#[cfg(target_os = "linux")]
#[test]
fn uniq_ends_its_output_with_a_whole_line_and_forgets_the_others_on_a_full_disk() {
    let store = temp_store();
    let dir = store.folder.path().join("disk");
    let disk = match Disk::mount(dir.to_str().unwrap(), "16m") {
        Ok(disk) => disk,
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let (db, out) = (dir.join("db"), dir.join("out"));
    let db = db.to_str().unwrap();
    std::fs::write(&out, format!("{}\n", "x".repeat(3799))).unwrap();
    let stdout = File::options().append(true).open(&out).unwrap();
    let mut child = command(&["uniq", db]).stdin(Stdio::piped()).stdout(stdout).spawn().unwrap();
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(b"first\n").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(&out).unwrap().len() == 3800 {
        assert!(Instant::now() < until, "nothing is printed");
        std::thread::sleep(Duration::from_millis(1));
    }
    disk.fill();
    let input: String = (0..30).map(|n| format!("{n:099}\n")).collect();
    stdin.write_all(input.as_bytes()).unwrap();
    let message = "sievedb: cannot write to standard output: No space left on device (os error 28); \
                   3 lines are printed; later new lines are not stored, and are new in the next run\n";
    assert_eq!(ends(child), (Some(3), message.to_owned()));
    let printed = std::fs::read_to_string(&out).unwrap();
    assert_eq!(printed[3800..], format!("first\n{}", &input[..200]));
    std::fs::remove_file(dir.join("ballast")).unwrap();
    assert_eq!(run_with(&["uniq", db], input.as_bytes()).ok(), input[200..]);
}

#[cfg(target_os = "linux")]
#[test]
fn uniq_and_load_state_what_they_stored_before_the_disk_of_the_store_was_full() {
    let input: String = (0..20_000).map(|n| format!("line {n:06}\n")).collect();
    for (more, done) in [
        (&["uniq", "DB"][..], "1 line before it is stored, 1 printed; "),
        (&["uniq", "DB", "--count"], "1 line before it is stored; "),
        (&["uniq", "DB", "--journal", "OUT"], "1 line before it is stored, 1 written to the journal; "),
        (&["load", "DB", "-"], "1 line before it loaded; "),
    ] {
        let mut store = temp_store();
        let dir = store.folder.path().join("disk");
        let disk = match Disk::mount(dir.to_str().unwrap(), "16m") {
            Ok(disk) => disk,
            Err(why) => return eprintln!("not tested: {why}"),
        };
        store.db = dir.join("db").to_str().unwrap().to_owned();
        let out = store.folder.path().join("out").to_str().unwrap().to_owned();
        let args: Vec<String> =
            more.iter().map(|arg| arg.replace("DB", &store.db).replace("OUT", &out)).collect();
        let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(b"first\n").unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let is_stored = || run(&["contains", &store.db, "first"]).code == Some(0);
        while !is_stored() {
            assert!(Instant::now() < until, "nothing is stored");
            std::thread::sleep(Duration::from_millis(5));
        }
        disk.fill();
        let rest = input.clone();
        let mut stdin = child.stdin.take().unwrap();
        let feed = std::thread::spawn(move || _ = stdin.write_all(rest.as_bytes()));
        let (code, message) = ends(child);
        feed.join().unwrap();
        assert_eq!(code, Some(3), "{message}");
        let advice = match more[0] {
            "uniq" => "with the same input, the next run counts them as seen\n",
            _ => "the command can be repeated with the same input\n",
        };
        assert!(message.contains(&store.db) && message.ends_with(&format!("{done}{advice}")), "{message}");
        std::fs::remove_file(dir.join("ballast")).unwrap();
        let again = run_with(&args, format!("first\n{input}").as_bytes());
        assert_eq!(again.code, Some(0), "{again:?}");
        if more == ["uniq", "DB"] {
            assert!(again.stdout == input.as_bytes());
        }
        assert_eq!(run(&["count", &store.db]).stdout, b"20001\n");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_repair_that_finds_the_disk_full_names_the_directory_to_delete() {
    let store = temp_store();
    store.load(lines(2000).as_bytes());
    let dir = store.folder.path().join("disk");
    let disk = match Disk::mount(dir.to_str().unwrap(), "64k") {
        Ok(disk) => disk,
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let into = dir.join("new");
    let into = into.to_str().unwrap();
    let args = ["repair", &store.db, "--into", into];
    let message = run(&args).fails(3);
    let next = format!("; {into} is incomplete: delete it before the next repair\n");
    assert!(message.ends_with(&next), "{message}");
    assert!(run(&args).fails(2).ends_with(" is not empty\n"));
    drop(disk);
}

/// The reader takes some bytes of a pipe, which holds 64 KiB more.
#[test]
fn lines_that_uniq_could_not_print_are_new_in_the_next_run() {
    for more in [&[][..], &["--tag"], &["--batch", "20000"]] {
        let store = temp_store();
        let args = [&["uniq", &store.db, "--sync-every", "60000"][..], more].concat();
        let args = if more.contains(&"--batch") { [&["uniq", &store.db], more].concat() } else { args };
        let input: String = (0..40_000).map(|n| format!("line {n:06}\n")).collect();
        let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let fed = input.clone();
        let feed = std::thread::spawn(move || {
            _ = stdin.write_all(fed.as_bytes());
            stdin
        });
        child.stdout.take().unwrap().read_exact(&mut [0; 100_000]).unwrap();
        let (code, message) = ends(child);
        drop(feed.join().unwrap());
        let stored: usize = run(&["count", &store.db]).ok().trim().parse().unwrap();
        let stored_lines = format!("{},{:03} lines are", stored / 1000, stored % 1000);
        assert_eq!((code, message), (Some(0), reader_exited(&stored_lines)), "{more:?}");
        let line_len = if more.contains(&"--tag") { "new\tline 000000\n" } else { "line 000000\n" }.len();
        let bytes = stored * line_len;
        assert!((100_000 - line_len..=100_000 + (64 << 10)).contains(&bytes), "{more:?}: {stored} lines");
        let rest = run_with(&["uniq", &store.db], input.as_bytes()).ok();
        assert!(rest.lines().eq(input.lines().skip(stored)), "{more:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored_does_not_end_uniq() {
    let store = temp_store();
    let script = format!("trap '' INT; exec {} uniq {}", env!("CARGO_BIN_EXE_sievedb"), store.db);
    let mut shell = Command::new("sh");
    let shell =
        shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut printed = [0; 2];
    for line in [b"a\n", b"b\n"] {
        child.stdin.as_mut().unwrap().write_all(line).unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut printed).unwrap();
        signal(&child, "-INT");
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &printed), (Some(0), b"b\n"), "{output:?}");
}

/// A terminal of 80 columns: the first file reads what programs draw, the second is given to them.
fn terminal() -> (File, File) {
    let terminal = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
    pty::grantpt(&terminal).unwrap();
    pty::unlockpt(&terminal).unwrap();
    let name = pty::ptsname(&terminal, Vec::new()).unwrap();
    let other = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&other, size).unwrap();
    (terminal.into(), other)
}

#[test]
fn a_terminal_shows_progress_with_rate_and_clears_it_for_a_message() {
    let store = temp_store();
    let input = store.folder.path().join("input");
    let fifo = Command::new("mkfifo").arg(&input).status().unwrap();
    assert!(fifo.success());
    let (mut screen, stderr) = terminal();
    let child = command(&["load", &store.db, input.to_str().unwrap()]).stderr(stderr).spawn().unwrap();
    // The bar is drawn with the next line after a moment.
    let feed = std::thread::spawn(move || {
        let mut writer = File::options().write(true).open(&input).unwrap();
        let mut number = 0..;
        while writeln!(writer, "key{:06}\tvalue", number.next().unwrap()).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut drawn = Vec::new();
    let mut see = |what: &str| {
        let mut bytes = [0; 4096];
        while !String::from_utf8_lossy(&drawn).contains(what) {
            let len = screen.read(&mut bytes).unwrap();
            drawn.extend_from_slice(&bytes[..len]);
        }
    };
    see("/s");
    signal(&child, "-INT");
    see(" loaded");
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let drawn = String::from_utf8(drawn).unwrap();
    let (before, message) = drawn.split_once("sievedb: interrupted; ").unwrap();
    let loaded = run(&["count", &store.db]).ok();
    assert_eq!(message.trim_end(), format!("{} lines loaded", loaded.trim_end()));
    assert!(before.ends_with("\r\x1b[2K"), "{drawn:?}");
}

#[test]
fn an_answer_decides_the_exit_code_although_its_reader_is_gone() {
    let store = temp_store();
    store.load(lines(1000).as_bytes());
    run(&["compact", &store.db]).ok();
    let ends = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(args).stdout(writer).spawn().unwrap().wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let db = &store.db[..];
    assert_eq!(ends(&["contains", db, "key000001"]), (Some(0), String::new()));
    assert_eq!(ends(&["contains", db, "none"]), (Some(1), String::new()));
    assert_eq!(ends(&["get", db, "none", "--json"]), (Some(1), String::new()));
    assert_eq!(ends(&["scan", db]), (Some(0), String::new()));
    assert_eq!(ends(&["verify", db]), (Some(0), String::new()));
    let table = &store.paths_of(".sst")[0];
    let mut bytes = std::fs::read(table).unwrap();
    bytes[200] ^= 1;
    std::fs::write(table, bytes).unwrap();
    let next = format!("restore a backup, or save the rest with `sievedb repair {db} --into NEW`");
    let damaged = (Some(3), format!("sievedb: 1 piece of damage in {db}; {next}\n"));
    assert_eq!(ends(&["verify", db]), damaged);
    assert_eq!(ends(&["verify", db, "--json"]), damaged);
    let table = table.to_str().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let dumped = dump_command(&[table]).stdout(writer).output().unwrap();
    assert_eq!(dumped.status.code(), Some(3), "{dumped:?}");
}

#[test]
fn a_killed_load_keeps_its_written_lines() {
    let store = temp_store();
    let mut child = loading(&store, &lines(1000));
    let _stdin = child.stdin.take();
    signal(&child, "-KILL");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (None, 0));
    assert_eq!(run(&["scan", &store.db]).ok(), lines(1000));
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_the_size_of_files_is_a_failure_with_a_message() {
    let store = temp_store();
    let shell = |script: &str| {
        let script = script.replace("sievedb ", &format!("{} ", env!("CARGO_BIN_EXE_sievedb")));
        let script = format!("ulimit -f 200; {}", script.replace("DB", &store.db));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, message) = shell("head -c 3000000 /dev/urandom | base64 | sievedb load DB -");
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("File too large"), "{message}");
    let lines: String = (0..100_000).map(|line| format!("{line}\n")).collect();
    run_with(&["load", &store.db, "-"], lines.as_bytes()).ok();
    let (code, message) = shell("sievedb scan DB > DB.scan");
    assert_eq!(code, Some(3), "{message}");
    run(&["verify", &store.db]).ok();
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_in_use_with_more_tables_than_open_files_is_copied_and_restored() {
    let store = temp_store();
    let keyspace = sievedb::KeyspaceOptions::new().table_bytes(2 << 10).block_bytes(512);
    let db = sievedb::Options::new().default_keyspace(keyspace).open(&store.db).unwrap();
    (0..8000_u32).for_each(|n| db.put(n.to_be_bytes(), [n as u8; 100]).unwrap());
    db.compact().unwrap();
    assert!(db.stats().keyspaces[0].total().tables > 300);
    db.put("in the", "log").unwrap();
    for script in [
        "backup DB DB.repo",
        "backup --verify DB.repo",
        "restore DB.repo DB.restored",
        "verify DB.restored",
        "checkpoint DB DB.copy",
        "verify DB.copy",
    ] {
        let program = env!("CARGO_BIN_EXE_sievedb");
        let limited = format!("ulimit -n 256; {program} {}", script.replace("DB", &store.db));
        let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{script}: {output:?}");
    }
    for copy in ["restored", "copy"] {
        assert_eq!(run(&["count", &format!("{}.{copy}", store.db)]).ok(), "8001\n");
    }
}

#[test]
fn a_symbolic_link_that_leads_nowhere_is_called_so() {
    let store = temp_store();
    std::os::unix::fs::symlink("nowhere", &store.db).unwrap();
    let within = format!("{}/within", store.db);
    for args in [
        &["put", &store.db, "k", "v"][..],
        &["get", &store.db, "k"],
        &["scan", &store.db],
        &["verify", &store.db],
        &["put", &within, "k", "v"],
        &["get", &within, "k"],
    ] {
        let message = run(args).fails(3);
        assert!(message.contains("its path has a symbolic link whose target does not exist"), "{message}");
    }
    std::fs::create_dir(store.folder.path().join("nowhere")).unwrap();
    run(&["put", &store.db, "k", "v"]).ok();
    assert_eq!(run(&["get", &store.db, "k"]).ok(), "v\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_long_value_is_printed_with_little_more_memory_than_its_own() {
    let store = temp_store();
    let db = sievedb::Db::open(&store.db).unwrap();
    let value: Vec<u8> = (0..100_000_000u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    db.put("k", &value).unwrap();
    db.put("text", "v".repeat(100_000_000)).unwrap();
    db.close().unwrap();
    for args in ["scan DB", "scan DB --json", "get DB k", "get DB text --json"] {
        let script = args.replace("DB", &store.db);
        let program = env!("CARGO_BIN_EXE_sievedb");
        // Too little for a copy of the value.
        let script = format!("ulimit -v 420000; {program} {script} | wc -c");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        // A process that another test is starting may still have the lock.
        let notes = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(notes.lines().all(|note| note.ends_with("; the store is in use")), "{args}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.trim().parse::<u64>().unwrap() > 100_000_000, "{args}: {printed}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let store = temp_store();
    store.load(lines(10).as_bytes());
    for args in [
        &["scan", &store.db][..],
        &["get", &store.db, "key000001"],
        &["contains", &store.db, "key000001"],
        &["stats", &store.db],
        &["compact", &store.db],
        &["completion", "bash"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(args).stdout(full).spawn().unwrap().wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {message}");
        assert!(message.starts_with("sievedb: cannot write to standard output: "), "{message}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let absent = command(&["get", &store.db, "none"]).stderr(full).status().unwrap();
    assert_eq!(absent.code(), Some(1));
}

#[test]
fn a_closed_input_is_empty_and_a_closed_output_is_ignored() {
    let store = temp_store();
    let shell = |script: &str| {
        let script = script.replace("sievedb", env!("CARGO_BIN_EXE_sievedb")).replace("DB", &store.db);
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
fn without_a_terminal_no_progress_is_drawn() {
    let store = temp_store();
    let mut child = loading(&store, &lines(1000));
    std::thread::sleep(Duration::from_millis(500));
    child.stdin.as_mut().unwrap().write_all(b"one\tmore\n").unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("1,001 lines loaded, ") && !printed.contains('\x1b'), "{printed}");
}
