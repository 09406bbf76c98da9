//! Reads a log past its damage, record by record.

use std::io;
use std::path::Path;

use crate::batch::KeyspaceId;
use crate::error::{Error, Result};
use crate::file_header::FileKind;
use crate::fs::ReadFile;
use crate::inspect::file::{Head, Window};
use crate::inspect::framed::{self, FramedItem};
use crate::inspect::output::{Event, FileDamage, Out, Stop, View};
use crate::key::SeqNo;
use crate::wal::{Boundary, EditMark, RecordKind, decode_boundaries, decode_close, decode_promise};

pub(crate) enum LogItem<'a> {
    Batch(&'a [u8]),
    Boundaries(Vec<(KeyspaceId, Boundary)>),
    Promise(EditMark),
    Close(SeqNo, EditMark),
    /// From this offset on, bytes that were durable are damaged or missing.
    Lost(u64),
    Torn(u64),
}

/// `closed` is the end of the log according to the manifest. Missing bytes before it are lost.
pub(crate) fn read_log(
    file: &dyn ReadFile,
    path: &Path,
    closed: Option<u64>,
    take: &mut dyn FnMut(LogItem<'_>) -> Result<()>,
) -> Result<()> {
    let mut taken = Ok(());
    let walked = walk_log(file, closed, &mut |item| {
        taken = take(item);
        taken.is_ok().then_some(()).ok_or_else(|| Stop::Sink(io::Error::other("the repair failed")))
    });
    taken.and(walked.map_err(|stop| stop.error(path)))
}

fn walk_log(
    file: &dyn ReadFile,
    closed: Option<u64>,
    take: &mut dyn FnMut(LogItem<'_>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut window = Window::of_first(file, closed.unwrap_or(u64::MAX))?;
    let head = Head::read_any(&mut window)?;
    let mut nowhere = |_: &Event<'_>| Ok(());
    let mut out = Out::new(&mut nowhere, &View::new(), window.len()).with_whole_records();
    let file = (&head.file_id, FileKind::Log);
    let mut ending = framed::ending(&mut out, &mut window, file)?;
    ending.promise(closed.unwrap_or(0));
    framed::walk(&mut out, &mut window, file, &mut |_, found| {
        let offset = match &found {
            FramedItem::Record(record) => record.offset,
            FramedItem::Damaged(damaged) => damaged.offset,
        };
        if ending.is_room_at(offset) {
            return Ok(());
        }
        if ending.is_torn_at(offset) {
            return take(LogItem::Torn(offset));
        }
        let FramedItem::Record(record) = found else { return take(LogItem::Lost(offset)) };
        let item = match (record.kind, record.bytes.as_deref()) {
            (RecordKind::Batch, Some(bytes)) => Some(LogItem::Batch(bytes)),
            (RecordKind::Promise, Some(bytes)) => decode_promise(bytes).ok().map(LogItem::Promise),
            (RecordKind::Close, Some(bytes)) => {
                decode_close(bytes).ok().map(|(seqno, mark)| LogItem::Close(seqno, mark))
            }
            (RecordKind::Boundaries, Some(bytes)) => decode_boundaries(bytes).ok().map(LogItem::Boundaries),
            (_, None) | (RecordKind::Edit, _) => None,
        };
        take(item.unwrap_or(LogItem::Lost(offset)))
    })?;
    let len = window.len();
    if closed.is_some_and(|closed| len < closed) { take(LogItem::Lost(len)) } else { Ok(()) }
}

pub(crate) fn as_errors(path: &Path, damage: &[FileDamage]) -> Vec<Error> {
    damage.iter().map(|damage| damage.error(path)).collect()
}
