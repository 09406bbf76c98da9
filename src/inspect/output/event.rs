//! Events of a description, and the final report.

use std::borrow::Cow;
use std::io;

use super::damage::{FileDamage, Keys};
use super::stop::Stop;
use crate::checksum::FileId;

/// Receives the events of a description.
pub trait Sink {
    /// Receives one event. An error ends the description.
    ///
    /// # Errors
    ///
    /// An error of the sink.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()>;

    /// Receives a read error, with the keys of a table that it may affect. By default, ends the description.
    ///
    /// # Errors
    ///
    /// [`Stop::Read`], or an error of the sink.
    fn unreadable(&mut self, offset: u64, source: io::Error, keys: Option<&Keys>) -> Result<(), Stop> {
        let _ = keys;
        Err(Stop::Read { offset, source })
    }
}

impl<F: FnMut(&Event<'_>) -> io::Result<()>> Sink for F {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self(event)
    }
}

/// One item of a description.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first event.
    #[non_exhaustive]
    Begin {
        /// The kind of the file.
        kind: Kind,
        /// The length of the file in bytes.
        len: u64,
    },
    /// A fact about the whole file; facts precede the bytes.
    #[non_exhaustive]
    Fact {
        /// The subject of the fact.
        label: &'static str,
        /// The value of the fact.
        value: Value<'a>,
        /// The value as text, or details.
        note: Cow<'a, str>,
    },
    /// A stretch of bytes.
    Span(Span<'a>),
    /// Ranges that the view omits.
    #[non_exhaustive]
    Skipped {
        /// Start of the first range.
        offset: u64,
        /// Bytes up to the end of the last range.
        len: u64,
        /// The number of ranges.
        count: u64,
        /// The name of the omitted items, in the plural.
        what: &'static str,
    },
    /// An entry of a table or log.
    Entry(Entry<'a>),
    /// Two counts of the same items, which must agree.
    #[non_exhaustive]
    Check {
        /// The counted items.
        what: Cow<'a, str>,
        /// The part that states the expected number.
        against: &'static str,
        /// The counted number.
        found: u64,
        /// The expected number.
        expected: u64,
    },
    /// Damage.
    Damage(FileDamage),
    /// The last event.
    End(Report),
}

/// A range of bytes and its meaning. A group precedes its parts, one level deeper.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Span<'a> {
    /// 0 at the top level of the file.
    pub depth: u8,
    /// The start of the range.
    pub place: Place,
    /// The length in bytes.
    pub len: u64,
    /// The bytes or the first of them; empty for groups and secrets.
    pub bytes: &'a [u8],
    /// The name of the range.
    pub label: Cow<'a, str>,
    /// The value of the bytes.
    pub value: Value<'a>,
    /// The value as text, or details.
    pub note: Cow<'a, str>,
    /// Whether the checksum matches, if there is one.
    pub intact: Option<bool>,
}

/// The position of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Bytes from the start of the file.
    File(u64),
    /// A position in the contents of a compressed block, or of a record of several fragments.
    #[non_exhaustive]
    Payload {
        /// The start of the block or record in the file.
        of: u64,
        /// Bytes from the start of the contents.
        at: u64,
    },
}

/// The position of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::inspect) enum Payload {
    /// The payload is in the file, from this offset on.
    Plain(u64),
    /// The payload is computed from the block or record at this offset.
    Made(u64),
}

impl Payload {
    pub(in crate::inspect) fn place(self, at: u64) -> Place {
        match self {
            Self::Plain(base) => Place::File(base.saturating_add(at)),
            Self::Made(of) => Place::Payload { of, at },
        }
    }
}

/// The value of bytes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value; the note describes the bytes.
    None,
    /// A number.
    Number(u64),
    /// A checksum or hash, and its length in bytes.
    Hex(u64, u8),
    /// A random id.
    Id(FileId),
    /// Words.
    Text(Cow<'a, str>),
    /// Bytes of a client: a key or a value.
    Bytes(Cow<'a, [u8]>),
    /// A number from 0 to 1.
    Share(f64),
    /// A value that is not shown.
    Secret,
}

/// An entry of a table or log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The start of its block or record.
    pub offset: u64,
    /// The keyspace, for an entry of a log.
    pub keyspace: Option<u32>,
    /// The user key.
    pub key: &'a [u8],
    /// The sequence number.
    pub seqno: u64,
    /// Whether the key is deleted.
    pub delete: bool,
    /// The exclusive end of a range delete; empty if unbounded.
    pub end: Option<&'a [u8]>,
    /// The inline value, if the view includes values.
    pub value: Option<&'a [u8]>,
    /// Length of the value in bytes.
    pub value_len: u64,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A sorted table.
    Table,
    /// A write-ahead log.
    Log,
    /// A manifest.
    Manifest,
    /// `CURRENT`, which names the current manifest.
    Current,
    /// A filter in a separate file.
    FilterFile,
    /// The index of a backup.
    BackupIndex,
    /// A filter block without a file around it.
    FilterBlock,
    /// The lock file of a store.
    Lock,
    /// `RESERVE`, which reserves disk space.
    Reserve,
    /// An unrecognized kind.
    Unknown,
}

impl Kind {
    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Log => "write-ahead log",
            Self::Manifest => "manifest",
            Self::Current => "CURRENT",
            Self::FilterFile => "filter file",
            Self::BackupIndex => "backup index",
            Self::FilterBlock => "filter block",
            Self::Lock => "LOCK",
            Self::Reserve => "RESERVE",
            Self::Unknown => "not a file of a store",
        }
    }
}

/// The result of a description.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The described file or part.
    pub kind: Kind,
    /// The length in bytes.
    pub len: u64,
    /// The number of blocks or records, as counted by [`View::block`](super::View::block).
    pub units: u64,
    /// The number of bytes read that have a meaning.
    pub accounted: u64,
    /// Bytes at the end of a log or a manifest that were never promised to be durable. Opening the store drops them.
    pub torn_bytes: u64,
    /// Whether the view excluded a part of the file.
    pub partial: bool,
    /// The number of matching checksums.
    pub checksums: u64,
    /// The number of checks with equal counts.
    pub sums: u64,
    /// Number of pieces of damage.
    pub damage_count: u64,
    /// The first damage.
    pub first_damage: Option<FileDamage>,
}

impl Report {
    /// Whether all bytes read conform to the format.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.damage_count == 0
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<FileId> for Value<'_> {
    fn from(id: FileId) -> Self {
        Self::Id(id)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}
