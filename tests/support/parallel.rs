use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A successful case returns a count. A failed case returns the steps to repeat it.
pub(crate) fn cases<C: Sync, T: Send>(cases: &[C], run: impl Fn(&C) -> Result<T, String> + Sync) -> Vec<T> {
    let (next, failures, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match caught(|| run(case)) {
                        Ok(result) => mine.push(result),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
                done.lock().unwrap().extend(mine);
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let shown = failures.iter().take(12).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {} cases failed:\n{shown}", failures.len(), cases.len());
    done.into_inner().unwrap()
}

pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
