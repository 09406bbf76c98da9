//! Describes the envelope and the contents of a block.

use byteorder::{ByteOrder, LittleEndian};

use crate::block::{
    BlockHandle, BlockKind, BlockValues, ChunkRef, ENVELOPE_BYTES, Envelope, Trailer, WalkedEntry,
    walk_entries,
};
use crate::checksum::{FileId, checksum};
use crate::codec::DecodeError;
use crate::inspect::extensible::{self, describe_property, range};
use crate::inspect::output::{
    Entries, Entry, Event, Fault, Form, Out, Payload, Place, Result, Value, bytes, counted, fields,
};
use crate::key::SeqNo;
use crate::spans::block::SpanReader;

pub(super) struct Opened {
    pub(in crate::inspect) offset: u64,
    pub(super) sealed: Vec<u8>,
    pub(in crate::inspect) kind: BlockKind,
    pub(super) payload: bytes::Bytes,
}

impl Opened {
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

    pub(super) fn place(&self) -> Payload {
        match self.is_compressed() {
            true => Payload::Made(self.offset),
            false => Payload::Plain(self.offset + ENVELOPE_BYTES as u64),
        }
    }

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

pub(super) fn walk(
    kind: BlockKind,
    payload: &[u8],
    visit: &mut dyn FnMut(&WalkedEntry<'_>) -> Result,
) -> Result<Result<(), DecodeError>> {
    let entries = if kind == BlockKind::Index { BlockValues::Index } else { BlockValues::Data };
    match walk_entries(entries, payload, &mut |entry| visit(entry).map_err(Fault::Stop)) {
        Ok(()) => Ok(Ok(())),
        Err(Fault::Decode(error)) => Ok(Err(error)),
        Err(Fault::Stop(stop)) => Err(stop),
    }
}

pub(super) fn describe_envelope(out: &mut Out<'_>, file_id: &FileId, offset: u64, sealed: &[u8]) -> Result {
    let Some(head) = sealed.get(..ENVELOPE_BYTES) else { return Ok(()) };
    let kind = |kind| BlockKind::from_u8(kind as u8).map_or("unknown", BlockKind::name);
    let compression = |kind| ["none", "LZ4"].get(kind as usize).copied().unwrap_or("unknown");
    let layout = [
        ("kind", Form::Code(1, kind)),
        ("compression", Form::Code(1, compression)),
        ("flags", Form::Code(2, |flags| if flags == 1 { "hash index" } else { "" })),
        ("stored length", Form::Number(4)),
        ("raw length", Form::Number(4)),
    ];
    fields(out, Payload::Plain(offset), head, &layout)?;
    let Ok(envelope) = Envelope::decode(head) else { return Ok(()) };
    let computed = checksum(file_id, offset, &[&head[..12], &sealed[ENVELOPE_BYTES..]]);
    out.checksum(Place::File(offset + 12), &head[12..], "checksum", envelope.checksum, computed)
}

pub(super) fn describe_payload(out: &mut Out<'_>, block: &Opened) -> Result {
    let place = block.place();
    if block.is_compressed() {
        let start = block.offset + ENVELOPE_BYTES as u64;
        let note = format!(
            "offsets in its contents count from its own start: {}",
            bytes(block.payload.len() as u64)
        );
        out.leaf(Place::File(start), &block.sealed[ENVELOPE_BYTES..], "stored", "", note)?;
    }
    match block.kind {
        BlockKind::Data | BlockKind::Index => describe_entries(out, block.kind, place, &block.payload),
        BlockKind::Properties => extensible::describe(out, place, &block.payload, 0, describe_property),
        BlockKind::ValueChunk => {
            out.leaf(place.place(0), &block.payload, "part of a value", Value::from(&block.payload[..]), "")
        }
        BlockKind::Padding => out.leaf(place.place(0), &block.payload, "zeros", "", ""),
        BlockKind::Spans => describe_spans(out, place, &block.payload),
    }
}

/// Describes spans up to an unreadable one, which the block's scan has reported.
fn describe_spans(out: &mut Out<'_>, place: Payload, payload: &[u8]) -> Result {
    let described = SpanReader::default().read::<Fault>(payload, &mut |span| {
        let (start, end) = (&payload[span.start.clone()], &payload[span.end.clone()]);
        let note = range(start, end);
        let numbers: Vec<String> = span.seqnos.iter().map(u64::to_string).collect();
        let mut leaf = |at: usize, to: usize, name, value: String, note: &str| {
            out.leaf(place.place(at as u64), &payload[at..to], name, value, note).map_err(Fault::Stop)
        };
        leaf(span.at, span.end.end, "span", String::new(), &note)?;
        leaf(span.end.end, span.next, "sequence numbers", numbers.join(" "), "")
    });
    match described {
        Err(Fault::Stop(stop)) => Err(stop),
        _ => Ok(()),
    }
}

fn describe_entries(out: &mut Out<'_>, kind: BlockKind, place: Payload, payload: &[u8]) -> Result {
    let walked = walk(kind, payload, &mut |found| describe_entry(out, kind, place, payload, found))?;
    if walked.is_err() {
        return Ok(());
    }
    let Ok(trailer) = Trailer::of(payload) else { return Ok(()) };
    let start = trailer.restarts_at();
    if trailer.interval > 0 {
        let (at, bytes) = (trailer.entries.len() as u64, trailer.hash_bytes());
        out.leaf(place.place(at), bytes, "hash index", "", "a byte of the hash of each key, then zeros")?;
    }
    let offsets: Vec<String> =
        trailer.restarts.as_chunks::<4>().0.iter().map(|at| LittleEndian::read_u32(at).to_string()).collect();
    let note = "offsets of entries that share nothing";
    out.leaf(place.place(start as u64), trailer.restarts, "restarts", offsets.join(" "), note)?;
    let last = (start + trailer.restarts.len()) as u64;
    let (count, count_bytes) = (trailer.restart_count() as u64, if trailer.interval > 0 { 3 } else { 4 });
    let (count_bytes, interval) = payload[last as usize..].split_at(count_bytes);
    out.leaf(place.place(last), count_bytes, "restart count", count, "")?;
    match trailer.interval as u64 {
        0 => Ok(()),
        entries => out.leaf(place.place(last + 3), interval, "restart interval", entries, "entries"),
    }
}

fn describe_entry(
    out: &mut Out<'_>,
    kind: BlockKind,
    place: Payload,
    payload: &[u8],
    found: &WalkedEntry<'_>,
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
    match (found.handle, found.chunks) {
        (Some(BlockHandle { offset, len }), _) => {
            out.leaf(at, found.value, "handle", format!("block at {offset}, {len} bytes"), "")
        }
        (_, Some(ChunkRef { offset, total, count, .. })) => {
            let chunks = counted(count, "chunk", "chunks");
            let text = format!("{total} bytes in {chunks} from {offset} on");
            out.leaf(at, found.value, "value", text, "")
        }
        _ if found.is_delete() => Ok(()),
        _ => {
            let note = counted(found.value.len() as u64, "byte", "bytes");
            out.leaf(at, found.value, "value", found.value, note)
        }
    }
}

pub(super) fn range_deletes(
    out: &mut Out<'_>,
    block: u64,
    (start, end): (&[u8], &[u8]),
    seqnos: &[SeqNo],
) -> Result {
    seqnos.iter().try_for_each(|&seqno| {
        out.event(&Event::Entry(Entry {
            offset: block,
            keyspace: None,
            key: start,
            seqno,
            delete: true,
            end: Some(end),
            value: None,
            value_len: 0,
        }))
    })
}

pub(super) fn entry<'a>(block: u64, found: &WalkedEntry<'a>, wanted: Entries) -> Entry<'a> {
    let inline = found.chunks.is_none() && !found.is_delete();
    Entry {
        offset: block,
        keyspace: None,
        key: found.key.user,
        seqno: found.key.tag.seqno(),
        delete: found.is_delete(),
        end: None,
        value: (wanted == Entries::Values && inline).then_some(found.value),
        value_len: found.value_len(),
    }
}
