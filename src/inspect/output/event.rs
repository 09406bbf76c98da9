//! The parts of a description: events, in the order of the file, and the final report.
//!
//! A walker depends only on the format, and a [`Sink`] only on the output. Every event is complete (place, bytes,
//! meaning), so a sink can print it and keep no state.

use std::borrow::Cow;
use std::io;

use super::damage::{FileDamage, Keys};
use super::stop::Stop;
use crate::checksum::FileId;

/// Takes the events of a description, one after the other.
pub trait Sink {
    /// Takes one event. An error (a closed pipe) ends the description.
    ///
    /// # Errors
    ///
    /// An error of the sink.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()>;

    /// Records bytes that the system could not read; `keys` are the first and the last key that they can concern, if
    /// they are in a table. By default this ends the description.
    ///
    /// # Errors
    ///
    /// [`Stop::Read`], or whatever the sink could not do.
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
    /// The first event: the described file or part.
    #[non_exhaustive]
    Begin {
        /// Its kind.
        kind: Kind,
        /// Its length in bytes.
        len: u64,
    },
    /// A fact about the whole. Facts come before the bytes.
    #[non_exhaustive]
    Fact {
        /// Its subject.
        label: &'static str,
        /// Its value.
        value: Value<'a>,
        /// The same in words, or more.
        note: Cow<'a, str>,
    },
    /// A stretch of bytes.
    Span(Span<'a>),
    /// Stretches that the view leaves out.
    #[non_exhaustive]
    Skipped {
        /// Where the first of them starts.
        offset: u64,
        /// Bytes from there to the end of the last one.
        len: u64,
        /// How many they are.
        count: u64,
        /// Their name, in the plural.
        what: &'static str,
    },
    /// An entry of a table or log, if the view includes keys.
    Entry(Entry<'a>),
    /// Two ways to count the same thing, which must agree.
    #[non_exhaustive]
    Check {
        /// The counted items.
        what: Cow<'a, str>,
        /// The part that states the expected number.
        against: &'static str,
        /// The result.
        found: u64,
        /// The expected number.
        expected: u64,
    },
    /// Something that is not as the format wants it.
    Damage(FileDamage),
    /// The last.
    End(Report),
}

/// A range of bytes and its meaning. A group comes before its parts, which are one level deeper.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Span<'a> {
    /// 0 for what lies directly in the file.
    pub depth: u8,
    /// Where it starts.
    pub place: Place,
    /// Its length in bytes.
    pub len: u64,
    /// The bytes, or the first of them; empty for a group and for secrets.
    pub bytes: &'a [u8],
    /// Its name.
    pub label: Cow<'a, str>,
    /// The value of the bytes.
    pub value: Value<'a>,
    /// The same in words, or more.
    pub note: Cow<'a, str>,
    /// Whether it agrees with a checksum, for what one covers.
    pub intact: Option<bool>,
}

/// Where bytes stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// So many bytes from the start of the file.
    File(u64),
    /// An offset in the contents of a compressed block, or of a record in several fragments. Such bytes have no
    /// offset in the file.
    #[non_exhaustive]
    Payload {
        /// Where the block or the record starts in the file.
        of: u64,
        /// Bytes from the start of the contents.
        at: u64,
    },
}

/// Where the bytes of a payload stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::inspect) enum Payload {
    /// As they are in the file, from this offset on.
    Plain(u64),
    /// Nowhere: they were made from what starts at this offset.
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
    /// No value in addition to the note.
    None,
    /// A number.
    Number(u64),
    /// A number whose bits count: a checksum, a hash. And its length in bytes.
    Hex(u64, u8),
    /// A random id.
    Id(FileId),
    /// Words.
    Text(Cow<'a, str>),
    /// A client's bytes: a key, a value.
    Bytes(Cow<'a, [u8]>),
    /// A share of one.
    Share(f64),
    /// Not to be shown.
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
    /// Its sequence number.
    pub seqno: u64,
    /// Whether the key is deleted.
    pub delete: bool,
    /// Where the keys that are deleted end, without this one, if they are all from the key on; empty if nowhere.
    pub end: Option<&'a [u8]>,
    /// The value, if the view includes values and the entry has it inline.
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
    /// `CURRENT`, which names the manifest in force.
    Current,
    /// A filter in a separate file.
    FilterFile,
    /// The list of the files of a backup.
    BackupIndex,
    /// A filter block by itself.
    FilterBlock,
    /// The empty file that is locked by who works on a store.
    Lock,
    /// `RESERVE`, which keeps space free for a full disk.
    Reserve,
    /// Nothing that could be recognised.
    Unknown,
}

impl Kind {
    /// It in words.
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
    /// Its length in bytes.
    pub len: u64,
    /// The number of its blocks or records, as [`View::block`](super::View::block) counts them.
    pub units: u64,
    /// Bytes that were read and found to belong to something.
    pub accounted: u64,
    /// Bytes at the end of a log or a manifest that were never promised to be durable. They are no damage: a
    /// crash leaves them, and opening the store drops them.
    pub torn_bytes: u64,
    /// Whether the view left out reading a part of the file.
    pub partial: bool,
    /// Checksums that were computed and matched.
    pub checksums: u64,
    /// Sums that were compared and agreed.
    pub sums: u64,
    /// How often something was not as the format wants it.
    pub damage_count: u64,
    /// The first that was met.
    pub first_damage: Option<FileDamage>,
}

impl Report {
    /// Whether everything that was read is as the format wants it.
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
