//! Describes `RESERVE`: the id of its store, then random bytes.

use super::window::Window;
use crate::inspect::output::{Out, Place, Result, Value, counted};

pub(in crate::inspect) fn describe_reserve(out: &mut Out<'_>, window: &mut Window<'_>) -> Result {
    let len = window.len();
    let head = window.get(0, 16)?.to_vec();
    let id = head.first_chunk::<16>().filter(|id| **id != [0; 16]);
    match id {
        Some(id) => out.fact("store id", *id, "")?,
        None => out.fact("store id", "none", "a crash has interrupted its creation")?,
    }
    out.fact("keeps free", counted(len, "byte", "bytes"), "for the store, when the disk is full")?;
    out.showing(out.view.is_whole(), |out| {
        out.leaf(Place::File(0), &head, "store id", id.map_or(Value::None, |id| Value::Id(*id)), "")?;
        let rest = Place::File(head.len() as u64);
        out.group(rest, len - head.len() as u64, "bytes without meaning", "", |_| Ok(()))
    })?;
    out.report.accounted = len;
    Ok(())
}
