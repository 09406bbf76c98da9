//! Describes `CURRENT`.

use super::head::Head;
use super::window::Window;
use crate::checksum::checksum32;
use crate::file_header::HEADER_BYTES;
use crate::inspect::output::{Form, Out, Payload, Result, fields};
use crate::manifest::current::{self, Current};

pub(in crate::inspect) fn describe_current(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
) -> Result {
    let len = window.len();
    let bytes = window.get(0, current::BYTES as u64 + 1)?.to_vec();
    let decoded = Current::decode(&bytes);
    head.facts(out)?;
    if let Ok(current) = &decoded {
        out.fact("names", format!("MANIFEST-{:06}", current.manifest), "")?;
    }
    let base = HEADER_BYTES as u64;
    let body = &bytes[bytes.len().min(HEADER_BYTES)..];
    let covered = body.get(..28).unwrap_or_default();
    let layout = [
        ("manifest number", Form::Number(8)),
        ("manifest file id", Form::Id),
        ("reserved", Form::Raw(4)),
        ("checksum", Form::Checksum(checksum32(&head.file_id, base, &[covered]))),
    ];
    out.showing(out.view.is_whole(), |out| {
        head.describe(out)?;
        fields(out, Payload::Plain(base), body, &layout)
    })?;
    match decoded {
        Ok(_) => out.report.accounted += body.len() as u64,
        Err(error) if error.what == "CURRENT length" => {
            out.refused(len.min(current::BYTES as u64), &error)?
        }
        Err(error) if error.offset >= base => out.refused(0, &error)?,
        Err(_) => {}
    }
    Ok(())
}
