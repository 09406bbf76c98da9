//! Describes the header and the checksum of a backup's index.

use byteorder::{ByteOrder, LittleEndian};

use super::head::Head;
use super::window::Window;
use crate::checksum::checksum;
use crate::file_header::HEADER_BYTES;
use crate::inspect::output::{Form, Out, Payload, Place, Result, counted, fields};

/// The bytes of time, sequence number and count before the files.
const FIXED_BYTES: usize = 20;

/// Only the header of a longer index is described.
const BYTES_MAX: u64 = 64 << 20;

pub(in crate::inspect) fn describe_backup_index(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
) -> Result {
    head.facts(out)?;
    let (base, len) = (HEADER_BYTES as u64, window.len());
    if len > BYTES_MAX {
        out.report.partial = true;
        return head.describe(out);
    }
    let body = window.get(base, len.saturating_sub(base))?.to_vec();
    let Some((covered, stored)) =
        body.split_last_chunk::<8>().filter(|(covered, _)| covered.len() >= FIXED_BYTES)
    else {
        head.describe(out)?;
        return out.damage(len, "backup index", "it is cut off");
    };
    let files = u64::from(LittleEndian::read_u32(&covered[16..]));
    out.fact("names", counted(files, "file", "files"), "`sievedb backups` lists backups")?;
    let layout =
        [("time, in ms", Form::Number(8)), ("sequence number", Form::Number(8)), ("files", Form::Number(4))];
    let (found, expected) = (LittleEndian::read_u64(stored), checksum(&head.file_id, base, &[covered]));
    let end = base + covered.len() as u64;
    out.showing(out.view.is_whole(), |out| {
        head.describe(out)?;
        fields(out, Payload::Plain(base), covered, &layout)?;
        let rest = Place::File(base + FIXED_BYTES as u64);
        out.group(
            rest,
            (covered.len() - FIXED_BYTES) as u64,
            "names, lengths and checksums",
            "",
            |_| Ok(()),
        )?;
        out.checksum(Place::File(end), stored, "checksum", found, expected)
    })?;
    if found != expected {
        let detail = format!("stored {found:016x}, computed {expected:016x}");
        return out.damage(end, "backup index checksum", detail);
    }
    out.report.checksums += 1;
    out.report.accounted += body.len() as u64;
    Ok(())
}
