//! A process forks while a store is open. Each call of the child on the handle must fail at once with the reason. The
//! test runs itself as the forking process.

#![expect(unsafe_code, reason = "there is no fork without it")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sievedb::{Commit, Db, Durability, Error, KeyspaceOptions, Options, WriteBatch};

const CHILD: &str = "SIEVEDB_TEST_FORK";
const NAME: &str = "fork::a_forked_process_that_uses_or_drops_its_handle_gets_the_reason_and_writes_nothing";

fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let file = |path: &Path| (path.display().to_string(), std::fs::read(path).unwrap());
    let mut found: Vec<_> = entries.map(|entry| file(&entry.path())).collect();
    found.sort();
    found
}

/// Returns the first call whose error lacks the reason, or 0.
fn use_the_handle(db: Db, pending: &Commit) -> i32 {
    let parent = std::os::unix::process::parent_id();
    let (tells, told) = std::sync::mpsc::channel();
    let begun = db.write_pending(WriteBatch::from_iter([("pending", "")]), Durability::Synced);
    for commit in [pending, &begun] {
        let tells = tells.clone();
        commit.on_durable(move |result| tells.send(result).unwrap());
    }
    let mut synced = WriteBatch::new();
    synced.put("synced", "");
    let results = [
        db.put("a", "b"),
        db.get("k").map(drop),
        db.contains("k").map(drop),
        db.multi_contains(&["k"]).map(drop),
        db.iter().next().map_or(Ok(()), |entry| entry.map(drop)),
        db.snapshot().get("k").map(drop),
        db.write_with(synced, Durability::Synced),
        db.sync(),
        db.flush(),
        db.compact(),
        db.settle(),
        db.step().map(drop),
        db.keyspace("new", KeyspaceOptions::new()).map(drop),
        db.drop_keyspace("old"),
        db.clone().close(),
        begun.wait(),
        pending.wait(),
        told.try_recv().unwrap_or(Ok(())),
        told.try_recv().unwrap_or(Ok(())),
    ];
    let says_why =
        |result: &_| matches!(result, Err(Error::Forked { opened_by, .. }) if *opened_by == parent);
    drop(db);
    results.iter().position(|result| !says_why(result)).map_or(0, |index| index as i32 + 1)
}

fn in_a_forked_process(run: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls only `run`, which is under test, and then ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = run();
        // SAFETY: no destructor of the parent may run here.
        unsafe { libc::_exit(code) };
    }
    assert!(child > 0);
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(30) {
            // SAFETY: it is a child of this process, and has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the forked process waits for something");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(libc::WIFEXITED(status), "status {status}");
    libc::WEXITSTATUS(status)
}

fn fork_with(threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().background_threads(threads).reserve_bytes(0).open(dir.path()).unwrap();
    db.keyspace("old", KeyspaceOptions::new()).unwrap().put("k", "v").unwrap();
    db.settle().unwrap();
    let handle = db.clone();
    let pending = db.write_pending(WriteBatch::from_iter([("a", "b")]), Durability::Buffered);
    let before = contents(dir.path());
    let code = in_a_forked_process(|| use_the_handle(handle, &pending));
    assert_eq!(code, 0, "call {code} of the forked process did not say why");
    let own = tempfile::tempdir().unwrap();
    let code = in_a_forked_process(|| {
        let store = Options::new().background_threads(0).open(own.path()).unwrap();
        store.put("own", "").unwrap();
        assert!(store.contains("own").unwrap() && db.get("old").is_err());
        in_a_forked_process(|| {
            i32::from([store.put("c", "d"), store.get("own").map(drop)].iter().any(Result::is_ok))
        })
    });
    assert_eq!(code, 0);
    let code = in_a_forked_process(|| {
        let store = db.clone();
        store.put("c", "d").map_or(0, |()| 1)
    });
    assert_eq!(code, 0);
    assert_eq!(contents(dir.path()), before);
    assert!(matches!(Db::open(dir.path()), Err(Error::Locked { by_this_process: true, .. })));
    db.put("a", "b").unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.iter().count(), 1);
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn a_forked_process_that_uses_or_drops_its_handle_gets_the_reason_and_writes_nothing() {
    if std::env::var_os(CHILD).is_some() {
        [0, 2].into_iter().for_each(fork_with);
        return;
    }
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", NAME, "--test-threads", "1", "--nocapture"];
    let output = Command::new(program).args(arguments).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
