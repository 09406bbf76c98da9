//! A file for a walker, and the common header.

mod backup_index;
mod current;
mod head;
mod reserve;
mod window;

pub(in crate::inspect) use backup_index::describe_backup_index;
pub(in crate::inspect) use current::describe_current;
pub(in crate::inspect) use head::Head;
pub(in crate::inspect) use reserve::describe_reserve;
pub(in crate::inspect) use window::{InMemory, Window};
