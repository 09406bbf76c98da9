//! Counts all allocations of the program, including C++: with glibc, defines `malloc` and its variants, which call glibc's
//! functions under other names.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn start() {
    COUNTING.store(true, Relaxed);
}

pub(crate) fn count() -> Option<u64> {
    cfg!(all(target_os = "linux", target_env = "gnu")).then(|| COUNT.load(Relaxed))
}

#[inline]
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu")), expect(dead_code))]
fn note() {
    if COUNTING.load(Relaxed) {
        COUNT.fetch_add(1, Relaxed);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "functions of the C library are replaced")]
mod replaced {
    use std::ffi::{c_int, c_void};

    use super::note;

    unsafe extern "C" {
        fn __libc_malloc(size: usize) -> *mut c_void;
        fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
        fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
        fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    }

    const OUT_OF_MEMORY: c_int = 12;

    #[unsafe(no_mangle)]
    extern "C" fn malloc(size: usize) -> *mut c_void {
        note();
        // SAFETY: every size is valid.
        unsafe { __libc_malloc(size) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
        note();
        // SAFETY: every size is valid; glibc rejects an overflow.
        unsafe { __libc_calloc(count, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
        note();
        // SAFETY: `old` is null or was allocated by this allocator, as the caller promises.
        unsafe { __libc_realloc(old, size) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
        note();
        // SAFETY: glibc rounds the alignment up to a power of two.
        unsafe { __libc_memalign(align, size) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
        memalign(align, size)
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
        let allocated = memalign(align, size);
        if allocated.is_null() {
            return OUT_OF_MEMORY;
        }
        // SAFETY: `out` is writable, as the caller promises.
        unsafe { *out = allocated };
        0
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        start();
        let before = count().unwrap();
        for size in 1..=1000 {
            std::hint::black_box(vec![0_u8; size]);
        }
        let counted = count().unwrap() - before;
        assert!(counted >= 1000, "{counted}; other tests may have added some");
    }
}
