//! Describes a filter block read by [`super::survey`].

use super::facts::{facts_at, kind_words};
use super::known::Known;
use super::survey::Survey;
use crate::checksum::{FileId, checksum32};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES as FILE_HEADER_BYTES;
use crate::filter::Header;
use crate::filter::header::{HEADER_BYTES, HEADER_BYTES_MAX, MAGIC, block_len, owner};
use crate::inspect::file::{Head, Window};
use crate::inspect::output::{Detail, Form, Out, Payload, Place, Result, counted, fields};

pub(in crate::inspect) const ALIGN: u64 = 4096;

pub(in crate::inspect) fn is_aligned(at: u64) -> bool {
    at.is_multiple_of(ALIGN)
}

pub(in crate::inspect) fn is_at(window: &mut Window<'_>, at: u64) -> Result<bool> {
    Ok(is_aligned(at) && window.get(at, MAGIC.len() as u64)? == MAGIC)
}

/// Returns the block's length if its header is intact and names this table. Otherwise the bytes are part of a value.
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

pub(in crate::inspect) fn describe_block(out: &mut Out<'_>, window: &mut Window<'_>) -> Result {
    facts_at(out, window, 0)?;
    let shown = out.view.entries.is_none() && out.view.block.is_none_or(|block| block == 0);
    describe_last(out, window, 0, shown)
}

pub(in crate::inspect) fn describe_file(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    head.facts(out)?;
    let start = FILE_HEADER_BYTES as u64;
    let at = start.next_multiple_of(ALIGN);
    facts_at(out, window, at)?;
    let whole = out.view.is_whole();
    let gap = window.get(start, at - start)?.to_vec();
    out.showing(whole, |out| {
        head.describe(out)?;
        out.leaf(Place::File(start), &gap, "padding", "", "")
    })?;
    out.report.accounted += gap.len() as u64;
    if let Some(stray) = gap.iter().position(|&byte| byte != 0) {
        out.damage(start + stray as u64, "padding", "is not zero")?;
    }
    describe_last(out, window, at, whole || out.view.block == Some(0))
}

fn describe_last(out: &mut Out<'_>, window: &mut Window<'_>, at: u64, shown: bool) -> Result {
    let (len, picked) = (window.len(), out.view.block == Some(0));
    out.report.units = 1;
    if at > 0 && at >= len {
        return out.damage(len, "filter block", "the file ends before it");
    }
    let described = out.showing(shown, |out| {
        describe(out, window, (at, len), "filter block".into(), (picked, Known::Nothing))
    })?;
    match described.map_or(0, |described| len.saturating_sub(at + described)) {
        0 => Ok(()),
        more => {
            let detail = format!("{} follow the filter", counted(more, "byte", "bytes"));
            out.damage(len - more, "file length", detail)
        }
    }
}

pub(in crate::inspect) fn describe(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    (at, end): (u64, u64),
    label: String,
    (picked, known): (bool, Known<'_>),
) -> Result<Option<u64>> {
    let first = window.get(at, (end - at).min(HEADER_BYTES_MAX as u64))?.to_vec();
    let all = picked || out.detail == Detail::Bytes;
    let len = block_len(&first).and_then(|len| match end - at {
        room if len > room => {
            let detail = format!("{len} bytes, but only {room} are left");
            Err(DecodeError::corrupt(32, "filter block length", detail))
        }
        _ => Ok(len),
    });
    let len = match len {
        Ok(len) => len,
        Err(error) => {
            let len = first.len().min(HEADER_BYTES);
            out.group(Place::File(at), len as u64, label, "damaged", |out| {
                out.showing(all, |out| describe_header(out, at, &first))
            })?;
            out.refused(at, &error)?;
            return Ok(None);
        }
    };
    out.report.accounted += len;
    match Header::decode(&first) {
        _ if known.is_never_probed() => {
            out.group(Place::File(at), len, label, "of a domain that is never probed", |_| Ok(()))?;
            // Filters of this domain have an unknown layout.
            out.report.partial = true;
        }
        Err(error) => {
            out.group(Place::File(at), len, label, "", |_| Ok(()))?;
            out.refused(at, &error)?;
        }
        Ok(header) => {
            let survey = Survey::of(window, at, header, out.filter_bytes_max)?;
            out.group(Place::File(at), len, label, kind_words(&survey.header), |out| {
                out.showing(all, |out| describe_header(out, at, &first))?;
                survey.describe(out, window, at, all)
            })?;
            survey.judge(out, at)?;
            out.report.partial |= !survey.is_whole();
        }
    }
    known.judge(out, at, (&first, len))?;
    Ok(Some(len))
}

fn describe_header(out: &mut Out<'_>, at: u64, first: &[u8]) -> Result {
    let header = &first[..first.len().min(HEADER_BYTES)];
    let owner = header.get(16..32).and_then(|owner| owner.first_chunk::<16>()).copied().unwrap_or_default();
    let covered = [header.get(..12).unwrap_or_default(), header.get(16..).unwrap_or_default()];
    let domain = |domain| if domain == 0 { "whole user keys" } else { "unknown" };
    let layout = [
        ("magic", Form::Raw(8)),
        ("format version", Form::Number(2)),
        ("header length", Form::Number(2)),
        ("header checksum", Form::Checksum(checksum32(&owner, 0, &covered))),
        ("owner", Form::Id),
        ("block length", Form::Number(8)),
        ("kind", Form::Code(1, kind_name)),
        ("domain", Form::Code(1, domain)),
        ("hash id", Form::Number(1)),
        ("section count", Form::Number(1)),
        ("required flags", Form::Number(2)),
        ("optional flags", Form::Number(2)),
        ("seed", Form::Secret),
        ("salt", Form::Hex(8)),
        ("key count", Form::Number(8)),
        ("rate", Form::Hex(8)),
        ("size", Form::Number(8)),
        ("probes", Form::Number(1)),
        ("columns of group 0", Form::Number(1)),
        ("columns of group 1", Form::Number(1)),
        ("columns of group 2", Form::Number(1)),
        ("attempt", Form::Number(2)),
        ("reserved", Form::Raw(2)),
        ("buckets of layer 0", Form::Number(8)),
        ("buckets of layer 1", Form::Number(8)),
        ("buckets of layer 2", Form::Number(8)),
        ("buckets of layer 3", Form::Number(8)),
    ];
    let sections = [
        ("section 0 offset", "section 0 length", "section 0 checksum"),
        ("section 1 offset", "section 1 length", "section 1 checksum"),
        ("section 2 offset", "section 2 length", "section 2 checksum"),
        ("section 3 offset", "section 3 length", "section 3 checksum"),
        ("section 4 offset", "section 4 length", "section 4 checksum"),
    ];
    let sections = sections.map(|(offset, len, checksum)| {
        [
            (offset, Form::Number(8)),
            (len, Form::Number(8)),
            (checksum, Form::Hex(4)),
            ("reserved", Form::Raw(4)),
        ]
    });
    let layout = [&layout[..], &sections.concat(), &[("plain blocks", Form::Number(8))]].concat();
    fields(out, Payload::Plain(at), header, &layout)
}

fn kind_name(kind: u64) -> &'static str {
    match kind {
        1 => "Bloom",
        2 => "blocked Bloom",
        3 => "ribbon",
        _ => "unknown",
    }
}
