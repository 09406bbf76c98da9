//! Whether the files of a store are those that its opening found.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
/// Whether nothing has changed since the store was opened.
#[derive(Default)]
pub(in crate::db) struct Unchanged {
    pub(in crate::db) is_unchanged: AtomicBool,
    /// One thread begins.
    pub(in crate::db) beginning: Mutex<()>,
}
