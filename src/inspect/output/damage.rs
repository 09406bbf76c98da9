//! Damage.

use std::path::Path;

use super::escape::escape;
use crate::codec::{DecodeError, DecodeErrorKind};
use crate::error::Error;

/// The first and the last key of a range, inclusive.
pub type Keys = (Vec<u8>, Vec<u8>);

/// Bytes that violate the format.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDamage {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The damaged item.
    pub what: &'static str,
    /// The expected and the found value.
    pub detail: String,
    /// Whether the bytes are intact but have an unsupported version.
    pub newer: bool,
    pub(super) unsupported: Option<(u64, u64)>,
    /// The keys of a table that the damage may affect, if known.
    pub keys: Option<Keys>,
}

impl FileDamage {
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

    pub(in crate::inspect) fn new(offset: u64, what: &'static str, detail: impl Into<String>) -> Self {
        Self { offset, what, detail: detail.into(), newer: false, unsupported: None, keys: None }
    }

    pub(in crate::inspect) fn error(&self, path: &Path) -> Error {
        match self.unsupported {
            Some((found, supported)) => {
                Error::Unsupported { file: path.to_path_buf(), what: self.what, found, supported }
            }
            None => Error::corruption(path, self.offset, self.what, &*self.detail),
        }
    }

    /// [`keys`](Self::keys) as text to append to the description, or empty.
    #[must_use]
    pub fn concerns(&self) -> String {
        match &self.keys {
            None => String::new(),
            Some((first, last)) if first == last => format!("; concerns key {}", escape(first)),
            Some((first, last)) => format!("; concerns keys {} to {}", escape(first), escape(last)),
        }
    }
}
