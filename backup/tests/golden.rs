//! A repository as version 1 wrote it: its backup is the golden store of the format.
//!
//! `SIEVEDB_BLESS=1 cargo test -p sievedb-backup golden` makes it anew. Do that only for a new version of the format.

use std::path::{Path, PathBuf};

use sievedb::Options;
use sievedb_backup::{Control, Repository, Restore};

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "tests", "golden", "v1", name].iter().collect()
}

fn entries(dir: &Path) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let db = Options::new().read_only().open(dir).unwrap();
    let mut all = Vec::new();
    for name in db.keyspaces() {
        for item in db.existing_keyspace(&name).unwrap().iter() {
            let (key, value) = item.unwrap();
            all.push((name.clone(), key.to_vec(), value.to_vec()));
        }
    }
    all
}

#[test]
fn the_golden_repository_is_verified_and_restored_and_takes_another_backup() {
    if std::env::var_os("SIEVEDB_BLESS").is_some_and(|what| what != "dump") {
        let _ = std::fs::remove_dir_all(golden("repository"));
        let store = Options::new().read_only().open(golden("store")).unwrap();
        let repository = Repository::create(golden("repository")).unwrap();
        repository.backup(&store, &mut Control::new()).unwrap();
        std::fs::remove_dir(golden("repository").join("incomplete")).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for dir in ["files", "backups"] {
        std::fs::create_dir_all(at("repository").join(dir)).unwrap();
        for entry in std::fs::read_dir(golden("repository").join(dir)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), at("repository").join(dir).join(entry.file_name())).unwrap();
        }
    }
    let repository = Repository::open(at("repository")).unwrap();
    let report = repository.verify(&mut Control::new()).unwrap();
    assert!(report.is_sound() && report.backups == 1, "{report:?}");
    let files = std::fs::read_dir(at("repository").join("files")).unwrap().count();
    assert_eq!(report.files, files as u64, "every file belongs to the backup");
    let restored = repository.restore(at("restored"), &Restore::new(), &mut Control::new()).unwrap();
    assert!(restored.tables > 1 && restored.batches > 0, "{restored:?}");
    let expected = entries(&golden("store"));
    assert!(expected.len() > 1000 && entries(&at("restored")) == expected);
    // The original store has no new files.
    let store = Options::new().read_only().open(golden("store")).unwrap();
    assert_eq!(repository.backup(&store, &mut Control::new()).unwrap().copied_files, 0);
}
