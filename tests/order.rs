//! The order of file operations: see `support::audit` for the rules.

use std::sync::PoisonError;

use sievedb::fs::{CrashPolicy, MemFs};

use crate::support::audit::Audit;
use crate::support::store;
use crate::support::workload::Workload;

const SEEDS: std::ops::Range<u64> = 1..9;

#[test]
fn files_are_durable_before_anything_names_them_and_removed_after_nothing_does() {
    let mut checks = std::collections::BTreeMap::new();
    for seed in SEEDS {
        let fs = MemFs::new();
        let audit = Audit::watch(&fs);
        let mut workload = Workload::new(&fs, seed);
        workload.run(600).unwrap();
        workload.close().unwrap();
        let audit = audit.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(audit.violations.is_empty(), "seed {seed}: {:#?}", audit.violations);
        audit.checks.iter().for_each(|(rule, count)| *checks.entry(*rule).or_insert(0) += count);
    }
    println!("{checks:#?}");
    assert!(checks.len() == 9 && checks.values().all(|&count| count > 50), "{checks:?}");
}

#[test]
fn recovery_keeps_the_same_order() {
    let mut flushes = 0;
    for seed in SEEDS {
        let fs = MemFs::new();
        let mut workload = Workload::new(&fs, seed);
        for round in 0..20 {
            workload.run(20).unwrap();
            for policy in
                [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(seed * 100 + round)]
            {
                let image = fs.crash(policy);
                let audit = Audit::watch(&image);
                flushes += store::open(&image).unwrap().open_report().flushes;
                let audit = audit.lock().unwrap();
                assert!(
                    audit.violations.is_empty(),
                    "seed {seed}, round {round}, {policy:?}: {:#?}",
                    audit.violations
                );
            }
        }
    }
    assert!(flushes > 50, "{flushes} flushes while logs were replayed");
}

#[test]
fn opening_read_only_and_reading_everything_changes_nothing() {
    for seed in SEEDS {
        let fs = MemFs::new();
        let mut workload = Workload::new(&fs, seed);
        for round in 0..10 {
            workload.run(25).unwrap();
            let image = fs.crash(CrashPolicy::Random(seed * 100 + round));
            let before = store::files(&image);
            image.observe(|_, op| panic!("a read-only store does {op:?}"));
            let db = store::open_read_only(&image).unwrap();
            let contents = store::contents(&db).unwrap();
            let absent = crate::support::workload::universe();
            let findings = store::examine(&db, &contents, &absent).unwrap();
            assert!(findings.errors.is_empty() && findings.damage.is_empty(), "seed {seed}: {findings:?}");
            assert!(db.put("k", "v").is_err() && db.flush().is_err() && db.step().is_ok());
            db.close().unwrap();
            assert_eq!(store::files(&image), before, "seed {seed}, round {round}");
        }
    }
}
