//! Describes `CURRENT`, which is a file header and little more.

use super::head::Head;
use super::window::Window;
use crate::checksum::{FileId, checksum32};
use crate::file_header::HEADER_BYTES;
use crate::inspect::output::{Fields, Halt, Out, Payload, Result};
use crate::manifest::current::{self, Current};

/// Describes a `CURRENT`.
pub(in crate::inspect) fn describe_current(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
) -> Result {
    let len = window.len();
    // Longer than any CURRENT is as wrong as shorter, and is not read whole.
    let bytes = window.get(0, current::BYTES as u64 + 1)?.to_vec();
    let decoded = Current::decode(&bytes);
    head.facts(out)?;
    if let Ok(current) = &decoded {
        out.fact("names", format!("MANIFEST-{:06}", current.manifest), "")?;
    }
    let whole = out.view.block.is_none() && out.view.entries.is_none();
    out.showing(whole, |out| head.describe(out))?;
    let body = &bytes[bytes.len().min(HEADER_BYTES)..];
    let base = HEADER_BYTES as u64;
    let described = out.showing(whole, |out| Ok(describe_current_fields(out, body, &head.file_id)))?;
    match (described, decoded) {
        (Err(Halt::Stop(stop)), _) => return Err(stop),
        (_, Ok(_)) => out.report.accounted += body.len() as u64,
        // A damaged header has been reported already.
        (_, Err(error)) if error.offset >= base || error.what == "CURRENT length" => {
            let at = if error.what == "CURRENT length" { len.min(current::BYTES as u64) } else { 0 };
            out.refused(at, &error)?;
        }
        (_, Err(_)) => {}
    }
    Ok(())
}

fn describe_current_fields(out: &mut Out<'_>, body: &[u8], file_id: &FileId) -> Result<(), Halt> {
    let mut fields = Fields::new(out, Payload::Plain(HEADER_BYTES as u64), body);
    fields.u64("manifest number")?;
    fields.id("manifest file id")?;
    fields.bytes(4, "reserved", "")?;
    let computed = checksum32(file_id, HEADER_BYTES as u64, &[body.get(..28).unwrap_or_default()]);
    fields.checksum32("checksum", computed)?;
    Ok(())
}
