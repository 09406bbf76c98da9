//! The demo on a few thousand lines and paths.

use std::path::{Path, PathBuf};

use crate::dump::dump;
use crate::tool::{TempStore, command, run, temp_store};

const LINES: usize = 20_000;

fn words(store: &TempStore) -> String {
    let path = store.folder.path().join("words");
    let lines: String =
        (0..LINES).map(|n| format!("word/{:016x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    std::fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn figures(report: &str, label: &str) -> [f64; 2] {
    let row = report.lines().find(|line| line.trim_start().starts_with(&format!("{label}  ")));
    let row = row.unwrap_or_else(|| panic!("no row {label:?} in:\n{report}"));
    let numbers = row.trim_start()[label.len()..].replace([',', '%'], "");
    let numbers: Vec<f64> = numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn the_demo_reports_the_savings_of_filters_and_its_suggested_commands_work() {
    let store = temp_store();
    let words = words(&store);
    let report = run(&["demo", &store.db, "--from", &words]).ok();
    let opening: Vec<&str> = report.lines().take(6).collect();
    assert!(opening[0].starts_with("20,000 absent keys cost "), "{report}");
    assert!(opening[0].contains(" block reads with filters, 19,"), "{report}");
    assert!(opening[2].starts_with("  with filters     |  "), "{report}");
    assert!(
        opening[3].starts_with("  without filters  ########################################  "),
        "{report}"
    );
    assert!(opening[5].starts_with("Keys: 20,000 lines of "), "{report}");
    assert!(report.lines().count() < 40, "{report}");
    assert!(
        report.lines().all(|line| line.len() <= 80 || line.contains(&store.db) || line.contains(&words)),
        "{report}"
    );

    let [loaded, compacted] = figures(&report, "false positives, of all filters probed");
    let predicted = figures(&report, "false positives, predicted");
    for (measured, predicted) in [loaded, compacted].into_iter().zip(predicted) {
        // Six standard deviations of 20,000 probes, in per cent.
        let deviation = 6.0 * (predicted * (100.0 - predicted) / LINES as f64).sqrt();
        assert!((measured - predicted).abs() < deviation, "{report}");
    }
    assert!(predicted.iter().all(|rate| (0.02..0.3).contains(rate)), "{report}");
    let from_memory = figures(&report, "answered without reading a data block");
    assert!(from_memory.iter().all(|share| (99.5..100.0).contains(share)), "{report}");
    let with = figures(&report, "data blocks read per lookup");
    let without = figures(&report, "data blocks read per lookup, no filters");
    // About 8 of 20,000 lookups read a block; none with a probability of 1 in 3,000.
    assert!(with.iter().all(|blocks| (0.00004..0.004).contains(blocks)), "{report}");
    assert!(without.iter().all(|blocks| (0.9..1.05).contains(blocks)), "{report}");
    let bits = figures(&report, "filter bits per key");
    assert!(bits.iter().all(|bits| (10.0..30.0).contains(bits)), "{report}");

    let page = format!("{}.html", store.db);
    assert!(report.contains(&format!("iB), a page about it in {page}.\n")), "{report}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("data-value=\"20000\">20,000<") && page.contains("<small>of "), "{page}");

    // The printed commands work.
    assert!(report.contains(env!("CARGO_BIN_EXE_sievedb-dump")), "{report}");
    let commands: Vec<Vec<&str>> = report
        .lines()
        .skip_while(|line| *line != "Try next:")
        .skip(1)
        .map(|line| line.split_whitespace().skip(1).map(|word| word.trim_matches('\'')).collect())
        .collect();
    assert_eq!(commands.len(), 5, "{report}");
    assert!(run(&commands[0]).ok().starts_with("line "));
    run(&commands[1]).fails(1);
    assert_eq!(run(&commands[2]).ok().lines().count(), 5);
    assert!(run(&commands[3]).ok().contains("in tables  20,000 entries"), "{report}");
    assert!(dump(&commands[4]).ok().contains("intact"), "{report}");
}

#[test]
fn the_demo_prints_its_figures_as_one_object() {
    let store = temp_store();
    let words = words(&store);
    let printed = run(&["demo", &store.db, "--from", &words, "--json"]).ok();
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let found: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&found["keys"], &found["store"]), (&LINES.into(), &store.db.as_str().into()));
    for state in ["as_loaded", "compacted"] {
        let [with, without] =
            ["with_filters", "without_filters"].map(|filters| &found[state][filters]["absent"]);
        let blocks = |pass: &serde_json::Value| pass["data_blocks_per_lookup"].as_f64().unwrap();
        assert!(blocks(with) < 0.004 && blocks(without) > 0.9, "{printed}");
        assert_eq!(with["lookups"].as_u64(), Some(LINES as u64));
        assert!(with["answered_from_memory"].as_u64().unwrap() > LINES as u64 * 99 / 100);
    }
    assert_eq!(run(&["count", &store.db]).ok().trim(), "20000");
}

#[test]
fn a_second_demo_deletes_the_entries_of_the_first() {
    let store = temp_store();
    let words = words(&store);
    let first = run(&["demo", &store.db, "--from", &words]).ok();
    assert!(!first.contains("earlier demo"), "{first}");
    let few = store.folder.path().join("few");
    std::fs::write(&few, "apple\npear\n").unwrap();
    let second = run(&["demo", &store.db, "--from", few.to_str().unwrap()]).ok();
    assert!(second.contains("20,000 entries of an earlier demo were deleted"), "{second}");
    assert_eq!(run(&["scan", &store.db]).ok(), "apple\tline 1\npear\tline 2\n");
    let third = run(&["demo", &store.db, "--from", &words]).ok();
    let shape = |report: &str| report.lines().find(|line| line.starts_with("levels /")).map(str::to_owned);
    assert_eq!(shape(&third), shape(&first));
    // Files of earlier demos are removed.
    assert!(store.files().len() < 15, "{:?}", store.files().keys());
}

#[test]
fn the_page_of_the_demo_replaces_that_of_an_earlier_one_and_no_other_file() {
    let store = temp_store();
    let page = PathBuf::from(format!("{}.html", store.db));
    let few = store.folder.path().join("few");
    std::fs::write(&few, "apple\npear\n").unwrap();
    let demo = || run(&["demo", &store.db, "--from", few.to_str().unwrap()]);
    demo().ok();
    let first = std::fs::read_to_string(&page).unwrap();
    std::fs::write(&few, "apple\npear\nplum\n").unwrap();
    demo().ok();
    let second = std::fs::read_to_string(&page).unwrap();
    let entries = |number: u32| format!("data-stat=\"k0.total.entries\" data-value=\"{number}\"");
    assert!(first.contains(&entries(2)) && second.contains(&entries(3)), "{second}");
    std::fs::write(&page, "mine").unwrap();
    let kept = demo();
    assert!(kept.code == Some(0) && kept.stderr.contains("is not written: "), "{kept:?}");
    assert_eq!(std::fs::read(&page).unwrap(), b"mine");
    assert!(!String::from_utf8(kept.stdout).unwrap().contains("a page about it"));
}

#[test]
fn entries_that_the_demo_did_not_write_are_not_deleted() {
    let store = temp_store();
    let few = store.folder.path().join("few");
    std::fs::write(&few, "apple\npear\n").unwrap();
    let demo = || run(&["demo", &store.db, "--from", few.to_str().unwrap()]);
    demo().ok();
    run(&["put", &store.db, "mine", "1"]).ok();
    let message = demo().fails(2);
    assert!(message.contains("has entries that the demo did not write, which it would delete"), "{message}");
    assert_eq!(run(&["scan", &store.db]).ok(), "apple\tline 1\nmine\t1\npear\tline 2\n");
    run(&["delete", &store.db, "mine"]).ok();
    assert!(demo().ok().contains("2 entries of an earlier demo were deleted"));
}

#[cfg(unix)]
#[test]
fn a_directory_of_another_user_in_the_place_of_the_demo_is_not_used() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let store = temp_store();
    let words = words(&store);
    let (temporary, theirs) = (store.folder.path().join("temporary"), store.folder.path().join("theirs"));
    std::fs::create_dir(&temporary).unwrap();
    std::fs::create_dir(&theirs).unwrap();
    let user = std::fs::metadata(&temporary).unwrap().uid();
    symlink(&theirs, temporary.join(format!("sievedb-demo-{user}"))).unwrap();
    let second = temporary.join(format!("sievedb-demo-{user}-2"));
    std::fs::create_dir(&second).unwrap();
    // The superuser can change the owner of a directory.
    let is_given_away = std::os::unix::fs::chown(&second, Some(65534), None).is_ok();
    let output = command(&["demo", "--from", &words]).env("TMPDIR", &temporary).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && stderr.contains("is left as it is: it is a symbolic link"),
        "{stderr}"
    );
    assert_eq!(stderr.contains("is left as it is: it belongs to another user"), is_given_away, "{stderr}");
    assert_eq!(std::fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn the_demo_changes_no_keyspace_that_it_did_not_create() {
    let store = temp_store();
    let words = words(&store);
    run(&["put", &store.db, "mine", "1"]).ok();
    run(&["put", &store.db, "mine", "2", "--keyspace", "users"]).creates("users");
    run(&["put", &store.db, "mine", "3", "--keyspace", "new-without-filters"]).creates("new-without-filters");
    for options in
        [&[][..], &["--keyspace", "users"], &["--keyspace", "new"], &["--keyspace", "sievedb-demo"]]
    {
        let message = run(&[&["demo", &store.db, "--from", &words][..], options].concat()).fails(2);
        assert!(message.contains("was not made by the demo"), "{message}");
    }
    let report = run(&["demo", &store.db, "--from", &words, "--keyspace", "demo"]).ok();
    assert!(report.contains(" --keyspace demo "), "{report}");
    assert_eq!(run(&["get", &store.db, "mine"]).ok(), "1\n");
    assert_eq!(run(&["get", &store.db, "mine", "--keyspace", "users"]).ok(), "2\n");
    assert_eq!(run(&["get", &store.db, "mine", "--keyspace", "new-without-filters"]).ok(), "3\n");
}

#[test]
fn the_demo_leaves_other_files_in_its_directory_alone() {
    let store = temp_store();
    let words = words(&store);
    let mine = Path::new(&store.db).join("mine");
    std::fs::create_dir_all(&mine).unwrap();
    std::fs::write(mine.join("file"), "mine").unwrap();
    let refused = run(&["demo", &store.db, "--from", &words]);
    assert!(refused.code == Some(3) && refused.stderr.contains("mine"), "{}", refused.stderr);
    assert_eq!(std::fs::read_dir(&store.db).unwrap().count(), 1, "nothing was made beside it");

    std::fs::remove_dir_all(&store.db).unwrap();
    run(&["demo", &store.db, "--from", &words]).ok();
    std::fs::create_dir_all(&mine).unwrap();
    std::fs::write(mine.join("file"), "mine").unwrap();
    run(&["demo", &store.db, "--from", &words]).ok();
    assert_eq!(std::fs::read(mine.join("file")).unwrap(), b"mine");
}

#[test]
fn the_paths_of_a_directory_become_keys_with_size_and_time() {
    let store = temp_store();
    let top: PathBuf = store.folder.path().join("tree");
    for n in 0..300 {
        let folder = top.join(format!("folder {}", n % 7));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("file{n}.txt")), "x".repeat(n)).unwrap();
    }
    let report = run(&["demo", &store.db, "--from", top.to_str().unwrap()]).ok();
    assert!(report.contains("\nKeys: 300 file paths under "), "{report}");
    let file = top.join("folder 6").join("file48.txt");
    let value = run(&["get", &store.db, file.to_str().unwrap()]).ok();
    assert!(value.starts_with("48 bytes, 20") && value.ends_with("Z\n"), "{value}");
}

#[cfg(unix)]
#[test]
fn a_store_in_the_temporary_directory_that_cannot_be_used_is_left_as_it_is() {
    let store = temp_store();
    let words = words(&store);
    let temporary = store.folder.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let demo = || {
        let output = command(&["demo", "--from", &words]).env("TMPDIR", &temporary).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&temporary).unwrap());
    let dir = |number: &str| temporary.join(format!("sievedb-demo-{user}{number}"));
    let of_all = temporary.join("sievedb-demo");
    run(&["put", of_all.to_str().unwrap(), "k", "v"]).ok();
    assert!(demo().contains(&format!("kept in {} (", dir("").display())));
    assert_eq!(run(&["get", of_all.to_str().unwrap(), "k"]).ok(), "v\n");

    for entry in std::fs::read_dir(dir("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.extend_from_slice(b"more");
            std::fs::write(path, bytes).unwrap();
        }
    }
    std::fs::write(dir("-2"), "mine").unwrap();
    let report = demo();
    assert!(report.contains(&format!("kept in {} (", dir("-3").display())), "{report}");
    for name in ["", "-2"] {
        assert!(report.contains(&format!("note: {} is left as it is: ", dir(name).display())), "{report}");
    }
    assert_eq!(std::fs::read(dir("-2")).unwrap(), b"mine");
}

#[test]
fn an_empty_input_is_a_usage_error_and_creates_no_store() {
    let store = temp_store();
    let empty = store.folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let message = run(&["demo", &store.db, "--from", empty.to_str().unwrap()]).fails(2);
    assert!(message.contains("nothing to load"), "{message}");
    run(&["demo", &store.db, "--from", "no such path"]).fails(3);
    assert!(!Path::new(&store.db).exists());
}
