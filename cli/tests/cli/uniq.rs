//! `sievedb uniq`: exact, in order, and exactly once with a journal, even if killed.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::tool::{Conversation, TempStore, command, run, run_with, temp_store};

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 31
}

/// Many lines of few kinds.
fn sample(seed: u64, lines: u64, kinds: u64) -> String {
    let mut state = seed;
    (0..lines).map(|_| format!("line {}\n", random(&mut state) % kinds)).collect()
}

/// The first of equal lines, in order; `seen` has earlier inputs.
fn unique<'a>(input: &'a str, seen: &mut HashSet<&'a str>) -> String {
    input.split_inclusive('\n').filter(|line| seen.insert(line)).collect()
}

fn uniq(store: &TempStore, more: &[&str], input: &[u8]) -> String {
    run_with(&[&["uniq", &store.db], more].concat(), input).ok()
}

#[test]
fn each_line_is_printed_once_over_all_runs_for_any_bytes() {
    let store = temp_store();
    assert_eq!(uniq(&store, &["--empty-key"], b"b\na\nb\n\na\n\n"), "b\na\n\n");
    assert_eq!(uniq(&store, &["-"], b"a\nc\nb\nd"), "c\nd\n");
    let odd = run_with(&["uniq", &store.db, "--literal"], b"\\n\n\xff\r\n\xff\n a\n\xff\r\n");
    assert_eq!((odd.code, &odd.stdout[..]), (Some(0), &b"\\n\n\xff\r\n\xff\n a\n"[..]));
    let note = "sievedb: note: 2 lines end with a carriage return (CRLF), which was kept; --crlf drops it\n";
    assert_eq!(odd.stderr, note);
    let other = run_with(&["uniq", &store.db, "--keyspace", "other"], b"a\n");
    assert_eq!(other.creates("other"), "a\n");
    assert_eq!(uniq(&store, &[], b""), "");
    // Keys stored by other commands count as seen.
    run(&["put", &store.db, "put", "value"]).ok();
    assert_eq!(uniq(&store, &[], b"put\n"), "");
    assert_eq!(run(&["get", &store.db, "put"]).ok(), "value\n", "and is left as it is");
}

#[test]
fn every_size_of_a_batch_and_a_file_or_a_pipe_give_the_same_lines() {
    let inputs = [sample(1, 3000, 700), sample(2, 3000, 1500)];
    for batch in ["1", "7", "1000", "1000000"] {
        let store = temp_store();
        let mut seen = HashSet::new();
        let first = uniq(&store, &["--batch", batch], inputs[0].as_bytes());
        assert_eq!(first, unique(&inputs[0], &mut seen));
        let file = store.folder.path().join("input");
        std::fs::write(&file, &inputs[1]).unwrap();
        let others: String = {
            let mut seen = seen.clone();
            inputs[1].split_inclusive('\n').filter(|line| !seen.insert(line)).collect()
        };
        let copy = temp_store();
        uniq(&copy, &[], inputs[0].as_bytes());
        let file = file.to_str().unwrap();
        assert_eq!(run(&["uniq", &copy.db, file, "--batch", batch, "--seen"]).ok(), others);
        let second = run(&["uniq", &store.db, file, "--batch", batch]).ok();
        assert_eq!(second, unique(&inputs[1], &mut seen));
    }
}

#[test]
fn lines_are_counted_instead_of_printed() {
    let store = temp_store();
    assert_eq!(uniq(&store, &["--count"], b"a\nb\na\n"), "2\n");
    assert_eq!(uniq(&store, &["--count", "--seen"], b"a\nc\nc\n"), "2\n");
    assert_eq!(uniq(&store, &["--count"], b""), "0\n");
}

#[test]
fn a_field_or_a_match_can_be_the_key_of_a_line() {
    let store = temp_store();
    let log = b"ada GET /a\ngrace  GET /b\nada\tGET /c\n";
    assert_eq!(uniq(&store, &["--key", "1"], log), "ada GET /a\ngrace  GET /b\n");
    assert_eq!(run(&["scan", &store.db]).ok(), "ada\t\ngrace\t\n");
    let within = ["uniq", &store.db, "--keyspace", "paths", "--key", "/([a-b])"];
    let printed = run_with(&within, b"GET /a\nPUT /a\nGET /b\n").creates("paths");
    assert_eq!(printed, "GET /a\nGET /b\n");
    let lacking = run_with(&["uniq", &store.db, "--key", "2"], b"x y\nlone\nz w\n");
    assert_eq!((lacking.code, &lacking.stdout[..]), (Some(2), &b"x y\nz w\n"[..]));
    let message = "sievedb: standard input, line 2: \"lone\" has no field 2\n\
                   sievedb: standard input: 1 line without a valid key is neither stored nor printed\n";
    assert_eq!(lacking.stderr, message);
    assert!(run(&["uniq", &store.db, "--key", "("]).fails(2).contains("unclosed group"));
    assert!(run(&["uniq", &store.db, "--batch", "0"]).fails(2).contains("--batch"));
}

#[test]
fn a_line_that_is_too_long_is_reported_and_neither_stored_nor_printed() {
    for more in [&[][..], &["--tag"], &["--batch", "1"], &["--journal", "OUT"]] {
        let store = temp_store();
        let out = store.folder.path().join("out");
        let more: Vec<_> =
            more.iter().map(|&arg| if arg == "OUT" { out.to_str().unwrap() } else { arg }).collect();
        let long = [b"short\n", &[b'x'; 70_000][..], b"\nlater\n", &[b'y'; 65_537]].concat();
        let outcome = run_with(&[&["uniq", &store.db][..], &more].concat(), &long);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        let printed = std::fs::read(&out).unwrap_or(outcome.stdout);
        let expected = if more.contains(&"--tag") { "new\tshort\nnew\tlater\n" } else { "short\nlater\n" };
        assert_eq!(String::from_utf8(printed).unwrap(), expected, "{more:?}");
        let [first, second, sum] = outcome.stderr.lines().collect::<Vec<_>>()[..] else {
            panic!("{}", outcome.stderr)
        };
        assert!(first.contains("line 2: the key \"xxx") && first.len() < 200, "{first}");
        assert!(second.contains("line 4: the key \"yyy"), "{second}");
        assert!(sum.ends_with("2 lines without a valid key are neither stored nor printed"), "{sum}");
        assert_eq!(run(&["scan", &store.db]).ok(), "later\t\nshort\t\n");
    }
    let store = temp_store();
    let too_long = [&b"x 1\n"[..], &vec![b'y'; 17 << 20], b" 1\nz 1\n"].concat();
    let outcome = run_with(&["uniq", &store.db, "--key", "1"], &too_long);
    assert_eq!((outcome.code, &outcome.stdout[..]), (Some(2), &b"x 1\nz 1\n"[..]));
    let by_field = [&[b'y'; 70_000][..], b" 17\n"].concat();
    assert_eq!(uniq(&store, &["--key", "2", "--count"], &by_field), "1\n");
}

#[test]
fn only_the_first_of_many_lines_without_a_key_are_reported() {
    let store = temp_store();
    let outcome = run_with(&["uniq", &store.db, "--key", "2"], "lone\n".repeat(1000).as_bytes());
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(2), 11));
    let last = "standard input: 1,000 lines without a valid key are neither stored nor printed\n";
    assert!(outcome.stderr.contains("line 10: ") && outcome.stderr.ends_with(last), "{outcome:?}");
}

/// The reader waits for its input after the report.
#[test]
fn a_line_without_a_key_does_not_hold_back_earlier_or_later_lines() {
    let store = temp_store();
    let mut conversation = Conversation::begin(&["uniq", &store.db]);
    let long = format!("a\n{}\n", "x".repeat(70_000));
    for (line, answer) in
        [(&long[..], "a"), ("b\n", "b"), (&long, ""), ("c\n", "c"), ("d\nx\r\n", "d"), ("x\r\ne\n", "e")]
    {
        conversation.send(line);
        if !answer.is_empty() {
            assert_eq!(conversation.receive(), answer);
        }
    }
    assert_eq!(conversation.end_with(), Some(2));
}

#[test]
fn a_line_is_answered_before_the_next_one_is_sent() {
    let store = temp_store();
    let mut conversation = Conversation::begin(&["uniq", &store.db]);
    for (line, answer) in [("a\n", "a"), ("a\nb\n", "b"), ("a\nc\nb\n", "c")] {
        conversation.send(line);
        assert_eq!(conversation.receive(), answer);
    }
    conversation.end();
}

/// Leaves the pipe open, and kills the command once `is_time`.
fn kill_when(args: &[&str], input: &str, stdout: Stdio, mut is_time: impl FnMut() -> bool) {
    let mut child = command(args).stdin(Stdio::piped()).stdout(stdout).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_bytes().to_vec();
    let writer = std::thread::spawn(move || {
        // Fails when the command is killed.
        let _ = stdin.write_all(&input);
        stdin
    });
    let start = Instant::now();
    while !is_time() {
        assert!(start.elapsed() < Duration::from_secs(120), "no progress in two minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(writer.join().unwrap());
}

fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[test]
fn with_a_journal_each_line_is_written_exactly_once_whenever_it_is_killed() {
    let input = sample(3, 12_000, 4000);
    let expected = unique(&input, &mut HashSet::new());
    let store = temp_store();
    let path = store.folder.path().join("out");
    let out = path.to_str().unwrap();
    let args = ["uniq", &store.db, "-", "--batch", "60", "--journal", out];
    let mut state = 5;
    for _ in 0..8 {
        // Larger than the file, so that the journal has been cut before the kill.
        let goal = len(&path) + 1 + random(&mut state) % 3000;
        kill_when(&args, &input, Stdio::null(), || len(&path) >= goal);
        let so_far = std::fs::read_to_string(&path).unwrap();
        assert!(expected.starts_with(&so_far), "{} bytes", so_far.len());
        // As after a crash of the machine: uncommitted lines.
        if random(&mut state).is_multiple_of(2) {
            let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(b"line 1\nnever commit").unwrap();
        }
    }
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"never commit").unwrap();
    let outcome = run_with(&args, input.as_bytes());
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(0), 0), "{outcome:?}");
    assert!(outcome.stderr.contains(&format!(" from the end of {out}\n")), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(run_with(&args, input.as_bytes()).ok(), "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected, "nothing is new");
}

#[test]
fn without_a_journal_a_kill_loses_at_most_one_batch_of_output_and_repeats_none() {
    let input = sample(4, 12_000, 4000);
    let expected = unique(&input, &mut HashSet::new());
    let store = temp_store();
    let path = store.folder.path().join("out");
    let args = ["uniq", &store.db, "--batch", "60"];
    let mut state = 6;
    let mut printed = Vec::new();
    for _ in 0..6 {
        let before = printed.len();
        let goal = random(&mut state) % (expected.len() as u64 / 8);
        let out = std::fs::File::create(&path).unwrap();
        kill_when(&args, &input, out.into(), || len(&path) >= goal);
        let text = std::fs::read_to_string(&path).unwrap();
        printed.extend(text.lines().map(str::to_owned));
        let remembered: usize = run(&["count", &store.db]).ok().trim().parse().unwrap();
        assert!(remembered >= printed.len(), "{before} lines before, {} now", printed.len());
    }
    let rest = run_with(&args, input.as_bytes()).ok();
    printed.extend(rest.lines().map(str::to_owned));
    let distinct: HashSet<_> = printed.iter().collect();
    assert_eq!(distinct.len(), printed.len(), "no line is printed twice");
    let lost = expected.lines().count() - printed.len();
    assert!(lost <= 6 * 60, "{lost} lines were remembered and not printed");
}

#[test]
fn a_journal_in_a_missing_directory_leaves_no_store_behind() {
    let store = temp_store();
    let path = store.folder.path().join("mistyped/out");
    let message = run_with(&["uniq", &store.db, "--journal", path.to_str().unwrap()], b"a\n").fails(3);
    let expected = format!("there is no directory {}\n", path.parent().unwrap().display());
    assert!(message.ends_with(&expected), "{message}");
    assert!(std::fs::read_dir(store.folder.path()).unwrap().next().is_none());
}

#[test]
fn a_file_that_is_not_the_journal_is_refused_and_stays() {
    let store = temp_store();
    let path = store.folder.path().join("precious");
    std::fs::write(&path, "precious\n").unwrap();
    let args = ["uniq", &store.db, "-", "--journal", path.to_str().unwrap()];
    let message = run(&args).fails(3);
    assert!(
        message.contains("has 9 bytes, but this is a new journal: it begins with an empty file"),
        "{message}"
    );
    let other = store.folder.path().join("out");
    uniq(&store, &["--journal", other.to_str().unwrap()], b"a\n");
    let message = run(&args).fails(3);
    assert!(
        message.contains("is not the journal of this store, of which 2 bytes are committed"),
        "{message}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious\n");
    // Another keyspace has its own journal.
    let third = store.folder.path().join("third");
    let args = ["uniq", &store.db, "--keyspace", "k", "--journal", third.to_str().unwrap()];
    run_with(&args, b"a\nb\n").creates("k");
    assert_eq!(std::fs::read_to_string(&third).unwrap(), "a\nb\n");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "a\n");
    assert!(run(&["uniq", &store.db, "--journal", "x", "--seen"]).fails(2).contains("--seen"));
    let same = ["uniq", &store.db, "--keyspace", "uniq-journals", "--journal", "x"];
    assert!(run(&same).fails(2).contains("uniq-journals"));
}

#[test]
fn lines_of_crlf_are_refused_or_lose_the_carriage_return() {
    let store = temp_store();
    let input = b"a\r\nb\r\na";
    let message = run_with(&["uniq", &store.db], b"a\r\nb\r\n").fails(2);
    for part in [
        "line 1: the line ends with a carriage return (CRLF): --crlf drops it",
        "line 2: the line ends",
        "2 lines without a valid key are neither stored nor printed",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let among_others = run_with(&["uniq", &store.db, "--keyspace", "default"], b"c\nb\r\nd\n");
    assert_eq!((among_others.code, &among_others.stdout[..]), (Some(2), &b"c\nd\n"[..]));
    run(&["delete", &store.db, "c"]).ok();
    run(&["delete", &store.db, "d"]).ok();
    assert_eq!(uniq(&store, &["--crlf"], input), "a\nb\n");
    assert_eq!(run(&["scan", &store.db]).ok(), "a\t\nb\t\n");
}

#[test]
fn a_journal_that_was_moved_away_is_followed_by_a_new_one_on_request() {
    let store = temp_store();
    let (path, moved) = (store.folder.path().join("out"), store.folder.path().join("out.1"));
    let out = path.to_str().unwrap();
    uniq(&store, &["--journal", out], b"a\n");
    std::fs::rename(&path, &moved).unwrap();
    let message = run_with(&["uniq", &store.db, "--journal", out], b"a\nb\n").fails(3);
    assert!(message.contains("does not exist, and is not the journal of this store"), "{message}");
    assert!(message.ends_with("; --new-journal begins another one\n"), "{message}");
    assert!(!path.exists(), "nothing is left behind");

    let begin = |input: &[u8]| run_with(&["uniq", &store.db, "--journal", out, "--new-journal"], input);
    let begun = begin(b"a\nb\n");
    let note =
        format!("sievedb: note: the journal before this one is {out}, of which 2 bytes are committed\n");
    assert_eq!((begun.code, begun.stderr), (Some(0), note));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\n");
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "a\n");
    uniq(&store, &["--journal", out], b"c\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\nc\n");
    assert!(begin(b"d\n").fails(3).contains("has 4 bytes, but this is a new journal"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\nc\n");
    assert_eq!(run(&["contains", &store.db, "d"]).code, Some(1));
}

#[test]
fn a_run_that_is_refused_leaves_neither_a_store_nor_a_journal() {
    let store = temp_store();
    let (kept, never) = (store.folder.path().join("kept"), store.folder.path().join("never"));
    std::fs::write(&kept, "precious\n").unwrap();
    run(&["uniq", &store.db, "--journal", kept.to_str().unwrap()]).fails(3);
    run(&["uniq", &store.db, "no such file", "--journal", never.to_str().unwrap()]).fails(3);
    run(&["uniq", &store.db, "--keyspace", "uniq-journals", "--journal", never.to_str().unwrap()]).fails(2);
    assert!(!std::path::Path::new(&store.db).exists() && !never.exists());
}

#[test]
fn arguments_in_the_wrong_order_are_called_so() {
    let store = temp_store();
    let file = store.folder.path().join("file");
    std::fs::write(&file, "a\n").unwrap();
    let file = file.to_str().unwrap();
    for command in ["uniq", "load"] {
        let swapped = || run(&[command, file, &store.db]).fails(3);
        assert!(swapped().ends_with("; the order is DB FILE: the store, then the input\n"));
        run(&["put", &store.db, "k", "v"]).ok();
        assert!(swapped().ends_with(" is a directory; the order is DB FILE: the store, then the input\n"));
        assert!(!run(&[command, &store.db, "none"]).fails(3).contains("order"));
        std::fs::remove_dir_all(&store.db).unwrap();
    }
}

#[test]
fn all_lines_are_printed_with_a_tag_that_marks_new_ones() {
    let store = temp_store();
    assert_eq!(uniq(&store, &["--tag"], b"b\na\nb\n"), "new\tb\nnew\ta\nseen\tb\n");
    assert_eq!(uniq(&store, &["--tag", "--batch", "1"], b"a\nc\nc\n"), "seen\ta\nnew\tc\nseen\tc\n");
    for conflict in [&["--seen"][..], &["--count"], &["--journal", "x"]] {
        let refused = run_with(&[&["uniq", &store.db, "--tag"], conflict].concat(), b"");
        assert_eq!(refused.code, Some(2), "{conflict:?}");
    }
}

#[test]
fn a_tagged_line_is_answered_before_the_next_one_is_read() {
    let store = temp_store();
    let mut uniq = Conversation::begin(&["uniq", &store.db, "--tag"]);
    for (line, answer) in [("a\n", "new\ta"), ("b\n", "new\tb"), ("a\n", "seen\ta")] {
        uniq.send(line);
        assert_eq!(uniq.receive().trim_end(), answer);
    }
    uniq.end();
}

#[test]
fn a_dry_run_gives_the_same_lines_and_remembers_none() {
    let store = temp_store();
    assert_eq!(run(&["uniq", &store.db, "--dry-run"]).code, Some(3), "there is no store to read");
    assert_eq!(uniq(&store, &[], b"a\n"), "a\n");
    for _ in 0..2 {
        // Lines of earlier batches count too.
        assert_eq!(uniq(&store, &["--dry-run", "--batch", "1"], b"a\nb\nc\nb\n"), "b\nc\n");
        assert_eq!(uniq(&store, &["--dry-run", "--count"], b"a\nb\nc\nb\n"), "2\n");
    }
    assert_eq!(run(&["count", &store.db]).ok(), "1\n");
}

#[test]
fn trimmed_lines_are_equal_if_they_differ_in_spaces_at_their_ends() {
    let store = temp_store();
    assert_eq!(uniq(&store, &["--trim"], b" a b\t\na b\n \t\n  a  b\n"), " a b\t\n  a  b\n");
    assert_eq!(run(&["scan", &store.db]).ok(), "a  b\t\na b\t\n", "the trimmed lines are the keys");
    assert_eq!(uniq(&store, &["--trim", "--empty-key"], b" \n\t\n"), " \n");
    assert_eq!(uniq(&store, &["--trim", "--key", "x=(.*)"], b"1 x= q\n2 x=q \n"), "1 x= q\n");
}
