use std::path::Path;

use crate::tool::{TempStore, run, temp_store};

fn lines(count: u32, value: &str) -> Vec<u8> {
    (0..count).flat_map(|number| format!("key{number:06}\t{value}\n").into_bytes()).collect()
}

fn ids(repository: &str) -> Vec<String> {
    let listed = run(&["backups", repository]).ok();
    listed.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn ids_of(repository: &str) -> Vec<String> {
    let mut ids = ids(repository);
    let mut stores = std::collections::BTreeSet::new();
    ids.retain(|id| stores.insert(id.split('-').nth(1).unwrap().to_owned()));
    ids
}

fn paths(store: &TempStore) -> (String, String) {
    let path = |name: &str| store.folder.path().join(name).to_str().unwrap().to_owned();
    (path("repo"), path("restored"))
}

#[test]
fn a_store_in_use_is_backed_up_listed_verified_restored_and_pruned() {
    let store = temp_store();
    let (repository, restored) = paths(&store);
    store.load(&lines(3000, "first"));
    run(&["compact", &store.db]).ok();
    let first = run(&["backup", &store.db, &repository]).ok();
    assert!(first.contains(" files, ") && first.contains("; copied "), "{first}");
    let db = sievedb::Db::open(&store.db).unwrap();
    db.put("written", "later").unwrap();
    let second = run(&["backup", &store.db, &repository, "--json", "--limit-rate", "1G"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    let second: serde_json::Value = serde_json::from_slice(&second.stdout).unwrap();
    let (copied, all) = (&second["backup"]["copied_bytes"], &second["backup"]["bytes"]);
    assert!(copied.as_u64().unwrap() * 4 < all.as_u64().unwrap(), "{second}");
    let listed = run(&["backups", &repository]).ok();
    let ids = ids(&repository);
    let id = ids[0].split('-').nth(1).unwrap();
    assert!(listed.starts_with(&format!("{}  store {id}  ", ids[0])), "{listed}");
    let stats = run(&["stats", &store.db]);
    assert!(String::from_utf8(stats.stdout).unwrap().contains(&format!("\nid         {id}")));
    assert_eq!((ids.len(), &*ids[0]), (2, second["backup"]["id"].as_str().unwrap()));
    let json = run(&["backups", &repository, "--json"]).ok();
    assert!(json.lines().all(|line| line.contains("\"missing\":0")), "{json}");
    assert!(run(&["backup", "--verify", &repository]).ok().ends_with("sound      no damage found\n"));
    let made = run(&["restore", &repository, &restored]).ok();
    assert!(made.contains(&format!(" is a verified store from {}", ids[0])), "{made}");
    assert_eq!(run(&["get", &restored, "written"]).ok(), "later\n");
    assert_eq!(run(&["count", &restored]).ok(), "3,001\n".replace(',', ""));
    let exists = run(&["restore", &repository, &restored]).fails(3);
    assert!(exists.contains("it exists; a store is restored to a new directory"), "{exists}");
    let older = format!("{restored}2");
    run(&["restore", &repository, "--at", &ids[1], &older]).ok();
    run(&["get", &older, "written"]).fails(1);
    let pruned = run(&["backup", "--prune", "--keep", "1", &repository]).ok();
    assert!(pruned.starts_with("pruned: 1 backup removed, 1 kept; "), "{pruned}");
    let both = run(&["backup", &store.db, &repository, "--prune", "--keep", "1"]);
    assert_eq!(String::from_utf8(both.stdout).unwrap().lines().count(), 2);
    drop(db);
    // A restored store is another one: then a backup or a store must be chosen.
    run(&["put", &restored, "only", "here"]).ok();
    run(&["backup", &restored, &repository]).ok();
    let third = format!("{restored}3");
    let message = run(&["restore", &repository, &third]).fails(2);
    let newest = ids_of(&repository);
    assert!(message.contains(" 2 stores: store ") && message.contains("--at ID or --store ID"), "{message}");
    assert!(newest.iter().all(|id| message.contains(id)), "{message}");
    let id = newest[0].split('-').nth(1).unwrap();
    run(&["restore", &repository, &third, "--store", id]).ok();
    assert_eq!(run(&["get", &third, "only"]).ok(), "here\n");
    let message = run(&["restore", &repository, &format!("{restored}4"), "--at", "20"]).fails(2);
    assert!(message.contains("several ids begin with 20: ") && message.contains("--at ID"), "{message}");
}

#[test]
fn damage_is_named_and_the_rest_is_salvaged() {
    let store = temp_store();
    let (repository, restored) = paths(&store);
    store.load(&lines(3000, "value"));
    run(&["compact", &store.db]).ok();
    run(&["backup", &store.db, &repository]).ok();
    let files = std::fs::read_dir(Path::new(&repository).join("files")).unwrap();
    let table = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| std::fs::read(path).unwrap()[8] == 1)
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let message = run(&["restore", &repository, &restored]).fails(3);
    let table_name = table.to_str().unwrap();
    assert!(message.contains(&format!("{table_name} is damaged: its checksum is ")), "{message}");
    let next = format!(
        "; --salvage restores the readable data; `sievedb backups {repository}` lists older ones, --at ID restores one\n"
    );
    assert!(message.ends_with(&next), "{message}");
    assert!(!Path::new(&restored).exists());
    let verified = run(&["backup", "--verify", &repository]);
    assert_eq!(verified.code, Some(3));
    assert!(String::from_utf8(verified.stdout).unwrap().contains("damage     "));
    let heal = "the next backup copies damaged and missing files again if the store still has them";
    assert!(verified.stderr.contains(heal), "{}", verified.stderr);
    assert!(
        run(&["backups", &repository]).stderr.contains(" lacks 1 file; the next backup copies missing files")
    );
    let salvaged = run(&["restore", &repository, &restored, "--salvage"]);
    assert_eq!(salvaged.code, Some(3), "{salvaged:?}");
    let printed = String::from_utf8(salvaged.stdout).unwrap();
    assert!(printed.contains("lost") && !printed.contains("verified"), "{printed}");
    assert!(salvaged.stderr.contains(" is damaged: the losses of "), "{}", salvaged.stderr);
    let left: u32 = run(&["count", &restored]).ok().trim().parse().unwrap();
    assert!((1..3000).contains(&left), "{left}");
    let again = run(&["backup", &store.db, &repository]).ok();
    assert!(again.contains("; copied 1 file, "), "{again}");
    run(&["backup", "--verify", &repository]).ok();
    std::fs::remove_file(&table).unwrap();
    let listed = run(&["backups", &repository]);
    assert_eq!(listed.code, Some(3));
    assert!(listed.stderr.contains(" lacks 1 file"), "{listed:?}");
    // A damaged index prevents only pruning.
    let index =
        std::fs::read_dir(Path::new(&repository).join("backups")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    let made = run(&["backup", &store.db, &repository, "--prune", "--keep", "3"]);
    assert_eq!((made.code, String::from_utf8(made.stdout).unwrap().contains("; copied ")), (Some(3), true));
    assert!(made.stderr.contains(index.to_str().unwrap()), "{}", made.stderr);
    assert!(
        made.stderr.contains("nothing is pruned") && made.stderr.contains("or remove it"),
        "{}",
        made.stderr
    );
    let passed = run(&["restore", &repository, &format!("{restored}2")]);
    assert_eq!(passed.code, Some(0));
    assert!(passed.stderr.contains("note: passed over: "), "{passed:?}");
    let files = || {
        let entries = std::fs::read_dir(Path::new(&repository).join("files")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    run(&["put", &store.db, "newer", "1"]).ok();
    run(&["backup", &store.db, &repository]).ok();
    let new = files().difference(&before).next().unwrap().clone();
    let bytes = std::fs::read(&new).unwrap();
    std::fs::remove_file(&new).unwrap();
    let passed = run(&["restore", &repository, &format!("{restored}4")]);
    assert_eq!(passed.code, Some(0));
    assert!(passed.stderr.contains(" lacks 1 file\n"), "{passed:?}");
    std::fs::write(&new, bytes).unwrap();
    let advice = "an index cannot be copied again: remove it";
    let verified = run(&["backup", "--verify", &repository]);
    assert_eq!(verified.code, Some(3));
    let message = verified.stderr;
    assert!(message.contains("1 damaged or unreadable file in ") && message.contains(advice), "{message}");
    // An index that cannot be opened may be intact.
    std::fs::create_dir(index.with_file_name("20270101T000000.000Z-00000000-00000000.index")).unwrap();
    let verified = run(&["backup", "--verify", &repository]);
    assert_eq!(verified.code, Some(3));
    let message = verified.stderr;
    assert!(
        message.contains("2 damaged or unreadable files in ") && !message.contains("remove"),
        "{message}"
    );
    // A store that was damaged before its backup.
    let (store, repository) = (temp_store(), format!("{repository}2"));
    store.load(&lines(3000, "value"));
    run(&["compact", &store.db]).ok();
    let tables = std::fs::read_dir(&store.db).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.filter(|path| path.extension().is_some_and(|end| end == "sst")).max().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    run(&["backup", &store.db, &repository]).ok();
    let verified = run(&["backup", "--verify", &repository]);
    let printed = String::from_utf8(verified.stdout).unwrap();
    assert!(printed.contains("; the store had this damage when the file was copied\n"), "{printed}");
    let message = verified.stderr;
    assert!(
        verified.code == Some(3)
            && message.contains("; a store was damaged before its backup: `sievedb verify STORE` lists")
            && !message.contains(heal),
        "{message}"
    );
    let message = run(&["restore", &repository, &format!("{restored}3")]).fails(3);
    assert!(message.contains(" is of a store that was damaged before") && message.contains("; --salvage "));
    let salvaged = run(&["restore", &repository, &format!("{restored}3"), "--salvage"]);
    assert_eq!(salvaged.code, Some(3));
    let message = salvaged.stderr;
    assert!(
        message.contains("the store was damaged before backup ") && message.contains(" are listed"),
        "{message}"
    );
}

#[test]
fn salvaging_names_the_complete_backup_that_it_prefers_to_a_newer_one() {
    let store = temp_store();
    let (repository, restored) = paths(&store);
    store.load(b"old\t1\n");
    run(&["backup", &store.db, &repository]).ok();
    let files = || {
        let entries = std::fs::read_dir(Path::new(&repository).join("files")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    store.load(b"new\t1\n");
    run(&["backup", &store.db, &repository]).ok();
    let ids = ids(&repository);
    let file = files().difference(&before).next().unwrap().clone();
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(run(&["backup", "--verify", &repository]).code, Some(3));
    let salvaged = run(&["restore", &repository, &restored, "--salvage"]);
    let notes = format!(
        "note: chosen: {}, the newest backup without missing files; --at ID salvages another one\n",
        ids[1]
    );
    assert!(salvaged.code == Some(0) && salvaged.stderr.ends_with(&notes), "{salvaged:?}");
    assert!(salvaged.stderr.contains(&format!("passed over: {} lacks ", ids[0])), "{salvaged:?}");
    let at = run(&["restore", &repository, &format!("{restored}2"), "--salvage", "--at", &ids[0]]);
    assert!(at.code == Some(3) && !at.stderr.contains("chosen"), "{at:?}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let store = temp_store();
    let (repository, restored) = paths(&store);
    store.load(b"a\t1\n");
    let db = &store.db[..];
    for args in [
        vec!["backup", db],
        vec!["backup"],
        vec!["backup", db, &repository, "--verify"],
        vec!["backup", db, &repository, "--prune"],
        vec!["backup", db, &repository, "--keep", "3"],
        vec!["backup", db, &repository, "--prune", "--keep", "0"],
        vec!["backup", db, &repository, "--limit-rate", "fast"],
        vec!["backup", db, &repository, "--limit-rate", "0"],
        vec!["backup", db, &format!("{db}/repo")],
    ] {
        run(&args).fails(2);
    }
    for args in [
        vec!["backup", "--verify", db],
        vec!["backup", "--verify", &repository],
        vec!["backups", db],
        vec!["restore", db, &restored],
        vec!["backup", "none.db", &repository],
        vec!["backup", db, db],
    ] {
        run(&args).fails(3);
    }
    let help = run(&["backup", "--help"]).ok();
    assert!(help.contains("STORE REPO\n") && !help.contains("[REPO]"), "{help}");
    let swapped = run(&["backup", &repository, db]).fails(3);
    assert!(swapped.contains("it is a store; the order is STORE REPO"), "{swapped}");
    let missing = run(&["backups", &repository]).fails(3);
    assert!(missing.contains("there is no such directory"), "{missing}");
    let unmounted = run(&["backup", db, &format!("{repository}/below")]).fails(3);
    assert!(unmounted.contains(&format!("there is no directory {repository}")), "{unmounted}");
    assert!(!Path::new(&repository).exists());
    std::fs::create_dir_all(format!("{repository}/backups")).unwrap();
    let empty = run(&["backups", &repository]);
    assert_eq!((empty.code, &empty.stdout[..]), (Some(0), &b""[..]));
    assert_eq!(empty.stderr, format!("sievedb: note: {repository} has no backups\n"));
    run(&["backup", db, &repository]).ok();
    let next =
        format!("note: {repository} has backups of stores: `sievedb backups {repository}` lists them, ");
    for args in [
        &["verify", &repository][..],
        &["stats", &repository],
        &["get", &repository, "a"],
        &["load", &repository, "/dev/null"],
    ] {
        let message = run(args).fails(3);
        assert!(message.contains(&next), "{message}");
    }
    assert!(!run(&["stats", &restored]).fails(3).contains("backups"));
    run(&["restore", &repository, &restored, "--at", ""]).fails(2);
    assert_eq!(run(&["get", db, "a"]).ok(), "1\n");
}

#[cfg(unix)]
#[test]
fn an_interrupted_backup_and_restore_leave_nothing_half_done() {
    use crate::tool::command;
    let store = temp_store();
    let (repository, restored) = paths(&store);
    store.load(&lines(3000, "value"));
    let interrupt = |signal: &str, args: &[&str], is_begun: &dyn Fn() -> bool| {
        let child = command(args).spawn().unwrap();
        while !is_begun() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let (code, word) = if signal == "-INT" { (130, "interrupted") } else { (143, "terminated") };
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, format!("sievedb: {word}; nothing is left half done\n"));
    };
    let list = |dir: &str| {
        let entries = std::fs::read_dir(Path::new(&repository).join(dir)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect::<std::collections::BTreeSet<_>>()
    };
    let count = |dir: &str| list(dir).len();
    for signal in ["-INT", "-TERM"] {
        interrupt(signal, &["backup", &store.db, &repository, "--limit-rate", "1"], &|| {
            count("incomplete") > 0
        });
        assert_eq!((count("incomplete"), count("backups")), (0, 0));
    }
    run(&["backup", &store.db, &repository]).ok();
    let incomplete = format!("{restored}.restore-incomplete");
    let image = Path::new(&incomplete).join("image");
    for signal in ["-INT", "-TERM"] {
        interrupt(signal, &["restore", &repository, &restored, "--limit-rate", "1"], &|| image.exists());
        assert!(!Path::new(&restored).exists() && !Path::new(&incomplete).exists());
    }
    run(&["restore", &repository, &restored]).ok();
    assert_eq!(run(&["count", &restored]).ok(), "3000\n");
    // A file is marked, then the second one is read.
    let first = list("files").pop_first().unwrap();
    let bytes = std::fs::read(&first).unwrap();
    std::fs::write(&first, b"").unwrap();
    let marker = first.with_file_name(format!("{}.damaged", first.file_name().unwrap().to_str().unwrap()));
    for signal in ["-INT", "-TERM"] {
        interrupt(signal, &["backup", "--verify", &repository, "--limit-rate", "1"], &|| marker.exists());
        assert_eq!((std::fs::read(&first).unwrap().len(), count("incomplete")), (0, 0));
        std::fs::remove_file(&marker).unwrap();
    }
    std::fs::write(&first, bytes).unwrap();
    run(&["backup", "--verify", &repository]).ok();
}

/// Random values, so that tables do not shrink.
#[cfg(unix)]
fn overwritten(store: &TempStore, seed: u64) {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state ^ state >> 29)
    };
    let lines: String = (0..2000)
        .map(|key| format!("key{key:06}\t{}\n", (0..16).map(|_| word()).collect::<String>()))
        .collect();
    store.load(lines.as_bytes());
    run(&["compact", &store.db]).ok();
}

/// The disk has space for two versions of the store.
#[cfg(unix)]
#[test]
fn a_backup_that_finds_the_disk_full_prunes_and_tries_again() {
    let store = temp_store();
    let dir = store.folder.path().join("disk");
    let _disk = match crate::situations::Disk::mount(dir.to_str().unwrap(), "1600k") {
        Ok(disk) => disk,
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let repository = dir.join("repo");
    let repository = repository.to_str().unwrap();
    let back_up = || run(&["backup", &store.db, repository, "--prune", "--keep", "1"]);
    for seed in [1, 2] {
        overwritten(&store, seed);
        back_up().ok();
    }
    overwritten(&store, 3);
    let message = run(&["backup", &store.db, repository]).fails(3);
    assert!(
        message.ends_with("No space left on device (os error 28); --prune --keep N removes old backups\n")
    );
    let unused = Path::new(repository).join("unused");
    let message = back_up().fails(3);
    let next = format!(
        "; to free space now, end all backups, run `sievedb backup --prune --keep N {repository}`, and if it succeeds, delete {}\n",
        unused.display()
    );
    assert!(message.contains(" 0 files deleted, 0 B; ") && message.ends_with(&next), "{message}");
    // As if they were found unused a day ago.
    for entry in std::fs::read_dir(&unused).unwrap() {
        let path = entry.unwrap().path();
        let (_, content) = path.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
        std::fs::rename(&path, unused.join(format!("1-{content}"))).unwrap();
    }
    let made = run(&["backup", &store.db, repository, "--prune", "--keep", "1", "--json"]);
    assert!(made.code == Some(0) && made.stderr.contains("; another try\n"), "{made:?}");
    let printed: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert!(printed["pruned"]["deleted_bytes"].as_u64().unwrap() > 0, "{printed}");
    assert_eq!(ids(repository).len(), 1);
    run(&["backup", "--verify", repository]).ok();
}

/// With a log of two lines.
#[test]
fn the_recipe_of_the_guide_deduplicates_backs_up_and_goes_on_from_a_restored_store() {
    let guide = include_str!("../../../src/guide/live_reads.md");
    let recipe = guide.split_once("## Deduplicate").unwrap().1.split("```").nth(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("access.log"), "one\ntwo\none\n").unwrap();
    let mut outputs = Vec::new();
    for line in recipe.lines().skip(1) {
        let args: Vec<&str> = line.split(" #").next().unwrap().split_whitespace().skip(1).collect();
        let input = std::fs::File::open(folder.path().join("access.log")).unwrap();
        let output = crate::tool::command(&args).current_dir(folder.path()).stdin(input).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        outputs.push(String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("new.log")).unwrap(), "one\ntwo\n");
    assert_eq!((outputs.len(), &*outputs[3]), (4, "seen\tone\nseen\ttwo\nseen\tone\n"));
}

#[cfg(target_os = "linux")]
fn niceness(id: &str) -> i64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_backup_runs_at_low_priority() {
    let store = temp_store();
    let (repository, _) = paths(&store);
    store.load(&lines(100, "value"));
    let args = ["backup", &store.db, &repository, "--limit-rate", "1"];
    let mut child = crate::tool::command(&args).spawn().unwrap();
    let incomplete = Path::new(&repository).join("incomplete");
    while std::fs::read_dir(&incomplete).map_or(0, Iterator::count) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let found = niceness(&child.id().to_string());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, (niceness("self") + 10).min(19));
}

/// `kill -9` at other moments in each run.
#[cfg(unix)]
#[test]
fn backups_and_restores_that_are_killed_leave_complete_backups_and_no_store() {
    use crate::tool::{command, run_with};
    use std::time::Duration;
    let store = temp_store();
    let (repository, restored) = paths(&store);
    store.load(&lines(2000, "value"));
    run(&["backup", &store.db, &repository]).ok();
    let kill_after = |args: &[&str], pause: Duration| {
        let mut child = command(args).spawn().unwrap();
        std::thread::sleep(pause);
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let (mut complete, mut interrupted) = (0, 0);
    for round in 0..12_u64 {
        let input = format!("round{round:03}\t{}\n", "x".repeat(5000));
        assert_eq!(run_with(&["load", &store.db, "-"], input.as_bytes()).code, Some(0));
        let pause = Duration::from_millis(round * 3);
        kill_after(&["backup", &store.db, &repository], pause);
        run(&["backup", "--verify", &repository]).ok();
        run(&["backups", &repository]).ok();
        kill_after(&["restore", &repository, &restored], pause * 2);
        interrupted += u32::from(Path::new(&format!("{restored}.restore-incomplete")).exists());
        if Path::new(&restored).exists() {
            complete += 1;
        } else {
            run(&["restore", &repository, &restored]).ok();
            assert!(!Path::new(&format!("{restored}.restore-incomplete")).exists());
        }
        run(&["verify", &restored]).ok();
        std::fs::remove_dir_all(&restored).unwrap();
        let _ = std::fs::remove_dir_all(format!("{restored}.restore-incomplete"));
    }
    println!("{complete} restores were complete, {interrupted} left their directory");
    run(&["backup", &store.db, &repository]).ok();
    run(&["restore", &repository, &restored]).ok();
    assert_eq!(run(&["count", &restored]).ok(), "2012\n");
}
