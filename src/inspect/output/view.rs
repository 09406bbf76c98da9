//! How much of a file is reported.

/// By default, a file of at most this many bytes is reported to the byte.
const SMALL_FILE_BYTES: u64 = 8 << 10;

/// How much of a file is reported, and which part of it. The default suits a person: all of a small file, the
/// shape of a large one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct View {
    /// How far it goes.
    pub detail: Detail,
    /// Only this block of a table (in the order of the file, from 0; filters count) or record of a log or
    /// manifest, to the byte.
    pub block: Option<u64>,
    /// The entries and nothing else.
    pub entries: Option<Entries>,
    /// Show the hash seed, which is otherwise secret: with the seed, an attacker can choose keys that every filter
    /// takes for present.
    pub secrets: bool,
    /// The name of the file, if it has one: an empty file is a `LOCK` by its name only.
    pub name: Option<String>,
}

/// How far a description goes. Each goes further than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Detail {
    /// [`Detail::Bytes`] for a file of up to 8 KiB, else [`Detail::Shape`].
    #[default]
    Auto,
    /// The summary in the file itself. A table's blocks are not read.
    Summary,
    /// Everything is read and checked; the first few of many blocks or records are described in a line each.
    Shape,
    /// A line for every block or record.
    Blocks,
    /// Everything, to the byte.
    Bytes,
}

/// The reported part of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Entries {
    /// Keys.
    Keys,
    /// Keys and values.
    Values,
}

impl View {
    /// The view for a person.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how far it goes.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Sets the one block or record.
    #[must_use]
    pub fn block(mut self, block: u64) -> Self {
        self.block = Some(block);
        self
    }

    /// Sets that only entries are described.
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

    /// Sets the name of the file.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether a file is described from end to end: neither a block of it, nor entries only.
    pub(in crate::inspect) fn is_whole(&self) -> bool {
        self.block.is_none() && self.entries.is_none()
    }

    /// The effective view for a file of `len` bytes.
    pub(super) fn detail_for(&self, len: u64) -> Detail {
        match self.detail {
            Detail::Auto if len <= SMALL_FILE_BYTES => Detail::Bytes,
            Detail::Auto => Detail::Shape,
            detail => detail,
        }
    }
}
