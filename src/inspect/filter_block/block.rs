//! Describes a filter block: its header, its sections and pages, and how good a filter it is.
//!
//! Where it may stand: by itself, in a table, in a file beside one. What its bytes are found to be is in
//! [`super::survey`].

use super::facts::{facts, kind_words};
use super::known::Known;
use super::survey::Survey;
use crate::checksum::{FileId, checksum32};
use crate::file_header::HEADER_BYTES as FILE_HEADER_BYTES;
use crate::filter::Header;
use crate::filter::header::{HEADER_BYTES, HEADER_BYTES_MAX, MAGIC, block_len, owner};
use crate::inspect::file::{Head, Window};
use crate::inspect::output::{Detail, Fields, Halt, Out, Payload, Place, Result, counted};

/// Filters in a file start at multiples of this.
pub(in crate::inspect) const ALIGN: u64 = 4096;

/// Whether a filter block may start at this offset.
pub(in crate::inspect) fn is_aligned(at: u64) -> bool {
    at.is_multiple_of(ALIGN)
}

/// Whether a filter block begins at `at`, by its magic.
pub(in crate::inspect) fn is_at(window: &mut Window<'_>, at: u64) -> Result<bool> {
    Ok(is_aligned(at) && window.get(at, MAGIC.len() as u64)? == MAGIC)
}

/// The length of the filter block of the table with this file id that begins at `at`, if one with an intact
/// header does. One of another owner is a part of somebody's value.
pub(in crate::inspect) fn intact_len(
    window: &mut Window<'_>,
    at: u64,
    table: &FileId,
) -> Result<Option<u64>> {
    if !is_at(window, at)? {
        return Ok(None);
    }
    let first = window.get(at, HEADER_BYTES_MAX as u64)?;
    Ok(block_len(first).ok().filter(|_| owner(first).as_ref() == Ok(table)))
}

/// Describes a file that is a filter block and nothing else.
pub(in crate::inspect) fn describe_block(out: &mut Out<'_>, window: &mut Window<'_>) -> Result {
    let len = window.len();
    if let Ok(header) = Header::decode(window.get(0, HEADER_BYTES as u64)?) {
        facts(out, &header)?;
    }
    out.report.units = 1;
    let picked = out.view.block == Some(0);
    let shown = out.view.entries.is_none() && out.view.block.is_none_or(|block| block == 0);
    let described =
        out.showing(shown, |out| describe(out, window, (0, len), "filter block", (picked, Known::Nothing)))?;
    rest(out, window, described.unwrap_or(len))
}

/// Describes a file that holds a filter beside its table.
pub(in crate::inspect) fn describe_file(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    head.facts(out)?;
    let len = window.len();
    let at = (FILE_HEADER_BYTES as u64).next_multiple_of(ALIGN);
    if let Ok(header) = Header::decode(window.get(at, HEADER_BYTES as u64)?) {
        facts(out, &header)?;
    }
    out.report.units = 1;
    let whole = out.view.block.is_none() && out.view.entries.is_none();
    let start = FILE_HEADER_BYTES as u64;
    let gap = window.get(start, at - start)?.to_vec();
    out.showing(whole, |out| {
        head.describe(out)?;
        out.leaf(Place::File(start), &gap, "padding", "", "")
    })?;
    out.report.accounted += gap.len() as u64;
    if let Some(stray) = gap.iter().position(|&byte| byte != 0) {
        out.damage(start + stray as u64, "padding", "is not zero")?;
    }
    if at >= len {
        return out.damage(len, "filter block", "the file ends before it");
    }
    let picked = out.view.block == Some(0);
    let described = out.showing(whole || picked, |out| {
        describe(out, window, (at, len), "filter block", (picked, Known::Nothing))
    })?;
    rest(out, window, described.map_or(len, |described| at + described))
}

/// Describes what stands behind the last thing that a file should hold.
fn rest(out: &mut Out<'_>, window: &Window<'_>, end: u64) -> Result {
    match window.len().saturating_sub(end) {
        0 => Ok(()),
        more => {
            out.damage(end, "file length", format!("{} follow the filter", counted(more, "byte", "bytes")))
        }
    }
}

/// Describes the filter at `at` of a file; the blocks end at `end`. Gives its length, `None` if that is not
/// known.
pub(in crate::inspect) fn describe(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    (at, end): (u64, u64),
    label: &str,
    (picked, known): (bool, Known<'_>),
) -> Result<Option<u64>> {
    let first = window.get(at, (end - at).min(HEADER_BYTES_MAX as u64))?.to_vec();
    let all = picked || out.detail == Detail::Bytes;
    let (len, header) = match (block_len(&first), Header::decode(&first)) {
        (Ok(len), header) if len <= end - at => (len, header),
        (Ok(len), _) => {
            let detail = format!("{len} bytes, but only {} are left", end - at);
            describe_header(out, at, &first, all, label)?;
            out.damage(at + 32, "filter block length", detail)?;
            return Ok(None);
        }
        (Err(error), _) => {
            describe_header(out, at, &first, all, label)?;
            out.refused(at, &error)?;
            return Ok(None);
        }
    };
    out.report.accounted += len;
    if known.is_not_asked() {
        out.group(Place::File(at), len, label.to_owned(), "of a domain that is not asked", |_| Ok(()))?;
        // Nobody here knows what it must look like.
        out.report.partial = true;
        return known.judge(out, at, (&first, len)).map(|()| Some(len));
    }
    let header = match header {
        Ok(header) => header,
        Err(error) => {
            out.group(Place::File(at), len, label.to_owned(), "", |_| Ok(()))?;
            out.refused(at, &error)?;
            return known.judge(out, at, (&first, len)).map(|()| Some(len));
        }
    };
    let survey = Survey::of(window, at, header, out.filter_bytes_max)?;
    let note = kind_words(&survey.header);
    out.group(Place::File(at), len, label.to_owned(), note, |out| {
        out.showing(all, |out| describe_fields(out, at, &first))?;
        survey.describe(out, window, at, all)
    })?;
    survey.judge(out, at)?;
    out.report.partial |= !survey.is_whole();
    known.judge(out, at, (&first, len))?;
    Ok(Some(len))
}

fn describe_header(out: &mut Out<'_>, at: u64, first: &[u8], all: bool, label: &str) -> Result {
    let len = first.len().min(HEADER_BYTES);
    out.group(Place::File(at), len as u64, label.to_owned(), "damaged", |out| {
        out.showing(all, |out| describe_fields(out, at, first))
    })
}

/// Describes the fields of a header, which need not be right.
fn describe_fields(out: &mut Out<'_>, at: u64, first: &[u8]) -> Result {
    let header = &first[..first.len().min(HEADER_BYTES)];
    match describe_fields_of(out, at, header) {
        Ok(()) | Err(Halt::Unread) => Ok(()),
        Err(Halt::Stop(stop)) => Err(stop),
    }
}

fn describe_fields_of(out: &mut Out<'_>, at: u64, header: &[u8]) -> Result<(), Halt> {
    let owner = header.get(16..32).and_then(|owner| owner.first_chunk::<16>()).copied().unwrap_or_default();
    let covered = [header.get(..12).unwrap_or_default(), header.get(16..).unwrap_or_default()];
    let mut fields = Fields::new(out, Payload::Plain(at), header);
    fields.bytes(8, "magic", "")?;
    fields.u16("format version", |_| String::new())?;
    fields.u16("header length", |_| String::new())?;
    fields.checksum32("header checksum", checksum32(&owner, 0, &covered))?;
    fields.id("owner")?;
    fields.u64("block length")?;
    fields.u8("kind", |kind| match kind {
        1 => "Bloom".into(),
        2 => "blocked Bloom".into(),
        3 => "ribbon".into(),
        _ => "unknown".into(),
    })?;
    fields.u8("domain", |domain| if domain == 0 { "whole user keys".into() } else { "unknown".into() })?;
    fields.u8("hash id", |_| String::new())?;
    fields.u8("section count", |_| String::new())?;
    fields.u16("required flags", |_| String::new())?;
    fields.u16("optional flags", |_| String::new())?;
    fields.secret("seed")?;
    fields.hex64("salt")?;
    fields.u64("key count")?;
    let rate = fields.hex64("rate")?;
    let _ = rate;
    fields.u64("size")?;
    fields.u8("probes", |_| String::new())?;
    for label in ["columns of group 0", "columns of group 1", "columns of group 2"] {
        fields.u8(label, |_| String::new())?;
    }
    fields.u16("attempt", |_| String::new())?;
    fields.bytes(2, "reserved", "")?;
    for label in ["buckets of layer 0", "buckets of layer 1", "buckets of layer 2", "buckets of layer 3"] {
        fields.u64(label)?;
    }
    for (offset, len, checksum) in [
        ("section 0 offset", "section 0 length", "section 0 checksum"),
        ("section 1 offset", "section 1 length", "section 1 checksum"),
        ("section 2 offset", "section 2 length", "section 2 checksum"),
        ("section 3 offset", "section 3 length", "section 3 checksum"),
        ("section 4 offset", "section 4 length", "section 4 checksum"),
    ] {
        fields.u64(offset)?;
        fields.u64(len)?;
        fields.hex32(checksum)?;
        fields.bytes(4, "reserved", "")?;
    }
    fields.u64("plain blocks")?;
    Ok(())
}
