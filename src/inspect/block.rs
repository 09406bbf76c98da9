//! Tells one block of a table: its envelope and what it holds.
//!
//! Entries are walked here by themselves, not by the cursor that lookups use: the inspector shows the numbers in
//! front of a key, and compares the restarts with the entries that they point to.

use byteorder::{ByteOrder, LittleEndian};

use super::annotate::{Fields, Halt, Payload};
use super::event::{Entry, Place, Value};
use super::fields;
use super::items::say_property;
use super::out::{Out, Result};
use super::view::Entries;
use super::words::{bytes, counted};
use crate::block::{BlockHandle, BlockKind, ChunkRef, ENVELOPE_BYTES, Envelope, RawEntry, decode_entry};
use crate::checksum::{FileId, checksum};
use crate::codec::DecodeError;
use crate::key::{EntryKind, InternalKey, Tag};
use crate::limits::VALUE_INLINE_MAX;

/// Most entries from one restart to the next.
const INTERVAL_MAX: usize = 16;

/// A block as it stands in the file, and its payload.
pub(super) struct Opened {
    pub(super) offset: u64,
    pub(super) sealed: Vec<u8>,
    pub(super) kind: BlockKind,
    pub(super) payload: bytes::Bytes,
}

impl Opened {
    /// Verifies and decompresses a block.
    pub(super) fn open(file_id: &FileId, offset: u64, sealed: &[u8]) -> Result<Self, DecodeError> {
        let (kind, payload) = crate::block::unseal(file_id, offset, sealed.to_vec())?;
        Ok(Self { offset, sealed: sealed.to_vec(), kind, payload })
    }

    pub(super) fn len(&self) -> u64 {
        self.sealed.len() as u64
    }

    pub(super) fn handle(&self) -> BlockHandle {
        BlockHandle { offset: self.offset, len: self.len() }
    }

    fn is_compressed(&self) -> bool {
        self.sealed[1] != 0
    }

    /// Where its payload stands.
    pub(super) fn place(&self) -> Payload {
        match self.is_compressed() {
            true => Payload::Made(self.offset),
            false => Payload::Plain(self.offset + ENVELOPE_BYTES as u64),
        }
    }

    /// Its lengths in a few words.
    pub(super) fn sizes(&self) -> String {
        let raw = self.payload.len() as u64;
        match self.is_compressed() {
            true => {
                let stored = self.len() - ENVELOPE_BYTES as u64;
                format!("{} in {} (LZ4)", bytes(raw), bytes(stored))
            }
            false => bytes(raw),
        }
    }
}

/// An entry of a data or index block, decoded.
pub(super) struct Found<'a> {
    /// Where it starts in the payload.
    pub(super) at: usize,
    pub(super) raw: &'a RawEntry,
    pub(super) key: InternalKey<'a>,
    pub(super) value: &'a [u8],
    pub(super) chunks: Option<ChunkRef>,
    pub(super) is_restart: bool,
}

impl Found<'_> {
    pub(super) fn is_delete(&self) -> bool {
        self.key.tag.kind() == EntryKind::Delete
    }

    /// Length of the value, wherever it stands.
    pub(super) fn value_len(&self) -> u64 {
        self.chunks.map_or(self.value.len() as u64, |chunks| chunks.total)
    }
}

/// Why the walk through a block ended early.
pub(super) enum Broken {
    Decode(DecodeError),
    Stop(super::out::Stop),
}

impl From<DecodeError> for Broken {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// Walks the entries of a data or index block, and checks everything that the format says of them.
pub(super) fn walk_entries(
    kind: BlockKind,
    payload: &[u8],
    visit: &mut dyn FnMut(&Found<'_>) -> Result,
) -> Result<(), Broken> {
    let restarts = restarts(payload)?;
    let entries = &payload[..payload.len() - 4 - restarts.len()];
    let mut restarts =
        restarts.as_chunks::<4>().0.iter().map(|at| LittleEndian::read_u32(at) as usize).peekable();
    let (mut key, mut before): (Vec<u8>, Option<(Vec<u8>, Tag)>) = (Vec::new(), None);
    let (mut at, mut since) = (0, 0);
    while at < entries.len() {
        let raw = decode_entry(entries, at)?;
        let wrong = |what, detail: String| Err(DecodeError::corrupt(at as u64, what, detail).into());
        if raw.shared > key.len() {
            return wrong("shared key length", format!("{} of a key of {} bytes", raw.shared, key.len()));
        }
        let is_restart = restarts.next_if_eq(&at).is_some();
        since = if is_restart { 1 } else { since + 1 };
        if is_restart && raw.shared != 0 {
            return wrong("shared key length", "not zero at a restart".into());
        }
        if (at == 0 && !is_restart) || since > INTERVAL_MAX {
            return wrong("restart interval", "too long, or not from 0".into());
        }
        key.truncate(raw.shared);
        key.extend_from_slice(&payload[raw.suffix.clone()]);
        let found = Found {
            at,
            raw: &raw,
            key: InternalKey::new(&key, raw.tag),
            value: &payload[raw.value.clone()],
            chunks: chunks(kind, &raw, payload)?,
            is_restart,
        };
        if before.as_ref().is_some_and(|(user, tag)| InternalKey::new(user, *tag) >= found.key) {
            return wrong("key order", "not after the key before it".into());
        }
        visit(&found).map_err(Broken::Stop)?;
        let (user, tag) = before.get_or_insert_with(|| (Vec::new(), raw.tag));
        user.clone_from(&key);
        *tag = raw.tag;
        at = raw.value.end;
    }
    match restarts.next() {
        None => Ok(()),
        Some(lost) => {
            let detail = format!("{lost} is not where an entry starts, or not after the restart before it");
            Err(DecodeError::corrupt(entries.len() as u64, "restart offset", detail).into())
        }
    }
}

/// The bytes of the restart offsets.
fn restarts(payload: &[u8]) -> Result<&[u8], DecodeError> {
    let wrong = |detail: String| {
        Err(DecodeError::corrupt(payload.len().saturating_sub(4) as u64, "restart count", detail))
    };
    let Some((rest, count)) = payload.split_last_chunk::<4>() else {
        return wrong(format!("{} bytes are no block", payload.len()));
    };
    let count = u64::from(LittleEndian::read_u32(count));
    if count == 0 || count * 4 >= rest.len() as u64 {
        return wrong(format!("{count} restarts in a block of {} bytes", payload.len()));
    }
    Ok(&rest[rest.len() - 4 * count as usize..])
}

fn chunks(kind: BlockKind, raw: &RawEntry, payload: &[u8]) -> Result<Option<ChunkRef>, DecodeError> {
    let start = raw.value.start as u64;
    let value = &payload[raw.value.clone()];
    if kind == BlockKind::Index {
        if raw.chunked {
            return Err(DecodeError::corrupt(start, "value code", "an index entry in chunks"));
        }
        BlockHandle::decode(value).map_err(|error| error.at(start))?;
        return Ok(None);
    }
    if raw.tag.kind() == EntryKind::Delete && !value.is_empty() {
        return Err(DecodeError::corrupt(start, "tombstone", "has a value"));
    }
    match raw.chunked {
        true => ChunkRef::decode(value).map(Some).map_err(|error| error.at(start)),
        false if value.len() > VALUE_INLINE_MAX => {
            let detail = format!("{} is over the limit of {VALUE_INLINE_MAX}", value.len());
            Err(DecodeError::corrupt(start, "value length", detail))
        }
        false => Ok(None),
    }
}

/// Tells the envelope of a block whose bytes are `sealed`; it need not be whole or right.
pub(super) fn tell_envelope(out: &mut Out<'_>, file_id: &FileId, offset: u64, sealed: &[u8]) -> Result {
    let Some(head) = sealed.get(..ENVELOPE_BYTES) else { return Ok(()) };
    let mut fields = Fields::new(out, Payload::Plain(offset), head);
    let told = (|| {
        fields.u8("kind", |kind| BlockKind::from_u8(kind).map_or("unknown", BlockKind::name).to_owned())?;
        fields.u8("compression", |kind| {
            ["none", "LZ4"].get(usize::from(kind)).copied().unwrap_or("unknown").to_owned()
        })?;
        fields.u16("flags", |_| String::new())?;
        fields.u32("stored length")?;
        fields.u32("raw length")
    })();
    if let Err(Halt::Stop(stop)) = told {
        return Err(stop);
    }
    let Ok(envelope) = Envelope::decode(head) else { return Ok(()) };
    let computed = checksum(file_id, offset, &[&head[..12], &sealed[ENVELOPE_BYTES..]]);
    out.checksum(Place::File(offset + 12), &head[12..], "checksum", envelope.checksum, computed)
}

/// Tells what an intact block holds, to the byte.
pub(super) fn tell_payload(out: &mut Out<'_>, block: &Opened) -> Result {
    let place = block.place();
    if block.is_compressed() {
        let start = block.offset + ENVELOPE_BYTES as u64;
        let note =
            format!("what it holds is counted from its own start: {}", bytes(block.payload.len() as u64));
        out.leaf(Place::File(start), &block.sealed[ENVELOPE_BYTES..], "stored", "", note)?;
    }
    match block.kind {
        BlockKind::Data | BlockKind::Index => tell_entries(out, block.kind, place, &block.payload),
        BlockKind::Properties => fields::tell(out, place, &block.payload, 0, say_property),
        BlockKind::ValueChunk => {
            out.leaf(place.place(0), &block.payload, "part of a value", Value::from(&block.payload[..]), "")
        }
        BlockKind::Padding => out.leaf(place.place(0), &block.payload, "zeros", "", ""),
    }
}

fn tell_entries(out: &mut Out<'_>, kind: BlockKind, place: Payload, payload: &[u8]) -> Result {
    let walked = walk_entries(kind, payload, &mut |found| tell_entry(out, kind, place, payload, found));
    match walked {
        Err(Broken::Stop(stop)) => return Err(stop),
        // It was told when the block was scanned.
        Err(Broken::Decode(_)) => return Ok(()),
        Ok(()) => {}
    }
    let Ok(restarts) = restarts(payload) else { return Ok(()) };
    let start = payload.len() - 4 - restarts.len();
    let offsets: Vec<String> =
        restarts.as_chunks::<4>().0.iter().map(|at| LittleEndian::read_u32(at).to_string()).collect();
    out.leaf(
        place.place(start as u64),
        restarts,
        "restarts",
        offsets.join(" "),
        "offsets of entries that share nothing",
    )?;
    let count = restarts.len() as u64 / 4;
    out.leaf(
        place.place(start as u64 + restarts.len() as u64),
        &payload[payload.len() - 4..],
        "restart count",
        count,
        "",
    )
}

fn tell_entry(
    out: &mut Out<'_>,
    kind: BlockKind,
    place: Payload,
    payload: &[u8],
    found: &Found<'_>,
) -> Result {
    let raw = found.raw;
    let verb = match kind {
        BlockKind::Index => "separator",
        _ if found.is_delete() => "delete",
        _ => "put",
    };
    let shares = if found.is_restart { "restart".to_owned() } else { format!("shares {}", raw.shared) };
    let note = format!("sequence {}, {shares}, adds {}", found.key.tag.seqno(), raw.suffix.len());
    let head = &payload[found.at..raw.suffix.start];
    out.leaf(place.place(found.at as u64), head, "entry", verb, note)?;
    let key = Value::from(found.key.user);
    out.leaf(place.place(raw.suffix.start as u64), &payload[raw.suffix.clone()], "key", key, "")?;
    let at = place.place(raw.value.start as u64);
    match (kind, found.chunks) {
        (BlockKind::Index, _) => {
            let handle = BlockHandle::decode(found.value).unwrap_or(BlockHandle { offset: 0, len: 0 });
            let text = format!("block at {}, {} bytes", handle.offset, handle.len);
            out.leaf(at, found.value, "handle", text, "")
        }
        (_, Some(chunks)) => {
            let text = format!(
                "{} bytes in {} from {} on",
                chunks.total,
                counted(chunks.count, "chunk", "chunks"),
                chunks.offset
            );
            out.leaf(at, found.value, "value", text, "")
        }
        _ if found.is_delete() => Ok(()),
        _ => {
            let note = counted(found.value.len() as u64, "byte", "bytes");
            out.leaf(at, found.value, "value", Value::from(found.value), note)
        }
    }
}

/// An entry of a data block as such.
pub(super) fn entry<'a>(block: u64, found: &Found<'a>, wanted: Entries) -> Entry<'a> {
    let inline = found.chunks.is_none() && !found.is_delete();
    Entry {
        offset: block,
        keyspace: None,
        key: found.key.user,
        seqno: found.key.tag.seqno(),
        delete: found.is_delete(),
        value: (wanted == Entries::Values && inline).then_some(found.value),
        value_len: found.value_len(),
    }
}
