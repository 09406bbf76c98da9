//! What a repair says and keeps after a certain loss, one store each.

use sievedb::{Db, Error, Options};

#[test]
fn no_path_makes_the_new_store_inside_the_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("s");
    let db = Db::open(&damaged).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    let list = || {
        let names = std::fs::read_dir(&damaged).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = list();
    let mut inside = vec!["s", "s/new", "./s/new/er", "s/../s/new", "none/../s/new", "none/./a/../../s"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&damaged, dir.path().join("link")).unwrap();
        inside.extend(["link/new", "none/../link/new"]);
    }
    for path in inside {
        let error = Options::new().repair(&damaged, dir.path().join(path)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{path}: {error}");
        assert!(error.to_string().contains("is in the damaged store"), "{path}: {error}");
    }
    assert_eq!(list(), before);
    let report = Options::new().repair(&damaged, damaged.join("../s2/new")).unwrap();
    assert!(report.is_complete() && dir.path().join("s2/new/CURRENT").exists(), "{report:#?}");
}
