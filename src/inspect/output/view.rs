//! The [`View`] of a description.

const SMALL_FILE_BYTES: u64 = 8 << 10;

/// The selected part and detail of a description.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct View {
    /// The detail.
    pub detail: Detail,
    /// Selects only this block of a table (from 0, in file order, with filters) or record of a log or manifest, with
    /// every byte.
    pub block: Option<u64>,
    /// Selects only entries.
    pub entries: Option<Entries>,
    /// Shows the hash seed. An attacker can use it to choose keys that pass every filter.
    pub secrets: bool,
    /// Skips the filters in a table, as [`Db::verify`](crate::Db::verify) does if separate files replaced them.
    pub skips_filters: bool,
    /// The file name, which identifies an empty file as `LOCK`.
    pub name: Option<String>,
}

/// The amount of detail, in increasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Detail {
    /// [`Detail::Bytes`] for a file of up to 8 KiB, else [`Detail::Shape`].
    #[default]
    Auto,
    /// Only the summary, from the ends of the file.
    Summary,
    /// Everything is read and checked; the first blocks or records are shown.
    Shape,
    /// A line per block or record.
    Blocks,
    /// Every byte.
    Bytes,
}

/// The selected part of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Entries {
    /// Keys.
    Keys,
    /// Keys and values.
    Values,
}

impl View {
    /// The default view.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the detail.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Selects one block or record.
    #[must_use]
    pub fn block(mut self, block: u64) -> Self {
        self.block = Some(block);
        self
    }

    /// Selects only entries.
    #[must_use]
    pub fn entries(mut self, entries: Entries) -> Self {
        self.entries = Some(entries);
        self
    }

    /// Sets whether the hash seed is shown.
    #[must_use]
    pub fn secrets(mut self, secrets: bool) -> Self {
        self.secrets = secrets;
        self
    }

    /// Sets whether the filters in a table are skipped.
    #[must_use]
    pub fn skips_filters(mut self, skips_filters: bool) -> Self {
        self.skips_filters = skips_filters;
        self
    }

    /// Sets the name of the file.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub(in crate::inspect) fn is_whole(&self) -> bool {
        self.block.is_none() && self.entries.is_none()
    }

    pub(super) fn detail_for(&self, len: u64) -> Detail {
        match self.detail {
            Detail::Auto if len <= SMALL_FILE_BYTES => Detail::Bytes,
            Detail::Auto => Detail::Shape,
            detail => detail,
        }
    }
}
