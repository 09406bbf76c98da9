pub(in crate::inspect) mod log;
pub(in crate::inspect) mod manifest;
mod record;
mod walk;

pub(in crate::inspect) use walk::{FramedItem, ending, walk};
