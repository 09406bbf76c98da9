//! Something that is not as the format wants it.

use std::path::Path;

use super::escape::escape;
use crate::codec::{DecodeError, DecodeErrorKind};
use crate::error::Error;

/// The first and the last of some keys.
pub type Keys = (Vec<u8>, Vec<u8>);

/// Something that is not as the format wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDamage {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// The damaged item.
    pub what: &'static str,
    /// The expected and the found value.
    pub detail: String,
    /// Whether it is intact and only newer than this program.
    pub newer: bool,
    /// If it is newer: the found value, and the largest supported value.
    pub(super) unsupported: Option<(u64, u64)>,
    /// The first and the last key that it can concern, if it is in a table and they are known.
    pub keys: Option<Keys>,
}

impl FileDamage {
    /// An error of a decoder that began at `base`.
    pub(in crate::inspect) fn of(base: u64, error: &DecodeError) -> Self {
        let (detail, unsupported) = match &error.kind {
            DecodeErrorKind::Corrupt(detail) => (detail.clone(), None),
            DecodeErrorKind::Unsupported { found, supported } => {
                let detail = format!("is {found:#x}, and this program supports it up to {supported:#x}");
                (detail, Some((*found, *supported)))
            }
            _ => ("cannot be decoded".into(), None),
        };
        let offset = base.saturating_add(error.offset);
        Self { unsupported, newer: unsupported.is_some(), ..Self::new(offset, error.what, detail) }
    }

    /// Damage that concerns no keys that are known.
    pub(in crate::inspect) fn new(offset: u64, what: &'static str, detail: impl Into<String>) -> Self {
        Self { offset, what, detail: detail.into(), newer: false, unsupported: None, keys: None }
    }

    /// The same as an error of the file at `path`.
    pub(in crate::inspect) fn error(&self, path: &Path) -> Error {
        match self.unsupported {
            Some((found, supported)) => {
                Error::Unsupported { file: path.to_path_buf(), what: self.what, found, supported }
            }
            None => Error::corruption(path, self.offset, self.what, &*self.detail),
        }
    }

    /// The keys that it can concern, in words to append to the description; empty if they are unknown.
    #[must_use]
    pub fn concerns(&self) -> String {
        match &self.keys {
            None => String::new(),
            Some((first, last)) if first == last => format!("; concerns key {}", escape(first)),
            Some((first, last)) => format!("; concerns keys {} to {}", escape(first), escape(last)),
        }
    }
}
