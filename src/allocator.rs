//! Returns freed memory to the system.
//!
//! glibc has a heap for each of several threads. It keeps the memory freed there, so resident memory can exceed the
//! budget by the memory that background threads have freed. Other allocators return memory themselves.

/// Takes about 0.2 ms per MiB returned. Meanwhile, other threads may wait for memory.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        #[expect(unsafe_code, reason = "the declaration of a C function")]
        unsafe extern "C" {
            // malloc_trim(3): safe from any thread.
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}
