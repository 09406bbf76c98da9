//! Describes a filter block: its header, its sections and pages, and how good a filter it is.
//!
//! Where it may stand: by itself, in a table, in a file beside one. What its bytes are found to be is in
//! [`super::survey`].

use super::annotate::{Fields, Halt, Payload};
use super::ends::Ends;
use super::event::{Place, Value};
use super::head::Head;
use super::out::{Out, Result};
use super::survey::Survey;
use super::view::Detail;
use super::window::Window;
use super::words::{bytes, count, counted, percent};
use crate::checksum::checksum32;
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES as FILE_HEADER_BYTES;
use crate::filter::header::{HEADER_BYTES, HEADER_BYTES_MAX, MAGIC, block_len};
use crate::filter::{Header, Kind};

/// Filters in a file start at multiples of this.
const ALIGN: u64 = 4096;

/// Whether a filter block begins at `at`, by its magic.
pub(super) fn is_at(window: &mut Window<'_>, at: u64) -> Result<bool> {
    Ok(at.is_multiple_of(ALIGN) && window.get(at, MAGIC.len() as u64)? == MAGIC)
}

/// Whether a filter block with an intact header begins at `at`.
pub(super) fn is_intact_at(window: &mut Window<'_>, at: u64) -> Result<bool> {
    Ok(is_at(window, at)? && block_len(window.get(at, HEADER_BYTES_MAX as u64)?).is_ok())
}

/// The length of the filter block at `at`, if its header is intact and all of it is there.
pub(super) fn len_at(window: &mut Window<'_>, at: u64) -> Result<Result<u64, DecodeError>> {
    let room = window.len().saturating_sub(at);
    let len = block_len(window.get(at, HEADER_BYTES_MAX as u64)?);
    Ok(len.and_then(|len| match len <= room {
        true => Ok(len),
        false => {
            Err(DecodeError::corrupt(32, "filter block length", format!("{len} bytes, {room} are left")))
        }
    }))
}

/// Tells of a file that is a filter block and nothing else.
pub(super) fn describe_block(out: &mut Out<'_>, window: &mut Window<'_>) -> Result {
    let len = window.len();
    if let Ok(header) = Header::decode(window.get(0, HEADER_BYTES as u64)?) {
        facts(out, &header)?;
    }
    out.report.units = 1;
    let picked = out.view.block == Some(0);
    let shown = out.view.entries.is_none() && out.view.block.is_none_or(|block| block == 0);
    let told = out.showing(shown, |out| tell(out, window, (0, len), "filter block", picked))?;
    rest(out, window, told.unwrap_or(len))
}

/// Tells of a file that holds a filter beside its table.
pub(super) fn describe_file(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
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
        head.tell(out)?;
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
    let told = out.showing(whole || picked, |out| tell(out, window, (at, len), "filter block", picked))?;
    rest(out, window, told.map_or(len, |told| at + told))
}

/// Tells of the filters of a table.
pub(super) fn describe_of_table(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let ends = Ends::read(window, head)?;
    let end = ends.blocks_end;
    let places: Vec<u64> = match &ends.properties {
        Ok(properties) => properties.filters.iter().map(|filter| filter.offset).collect(),
        Err(error) => {
            out.refused(0, error)?;
            let mut found = Vec::new();
            for at in (ALIGN..end).step_by(ALIGN as usize) {
                if is_intact_at(window, at)? {
                    found.push(at);
                }
            }
            found
        }
    };
    if places.is_empty() {
        out.fact("filter", "none", "")?;
    }
    for &at in &places {
        if let Ok(header) = Header::decode(window.get(at, HEADER_BYTES as u64)?) {
            facts(out, &header)?;
        }
    }
    for (number, &at) in places.iter().enumerate() {
        tell(out, window, (at.min(end), end), &format!("filter {number}"), true)?;
    }
    Ok(())
}

/// Tells what stands behind the last thing that a file should hold.
fn rest(out: &mut Out<'_>, window: &Window<'_>, end: u64) -> Result {
    match window.len().saturating_sub(end) {
        0 => Ok(()),
        more => {
            out.damage(end, "file length", format!("{} follow the filter", counted(more, "byte", "bytes")))
        }
    }
}

/// What the summary of a table says of its filters.
pub(super) fn facts_of_table(out: &mut Out<'_>, window: &mut Window<'_>, ends: &Ends) -> Result {
    let Ok(properties) = &ends.properties else { return Ok(()) };
    if properties.filters.is_empty() {
        return out.fact("filter", "none", "");
    }
    for filter in &properties.filters {
        let header = Header::decode(window.get(filter.offset, HEADER_BYTES as u64)?);
        match header {
            Ok(header) => facts_in_short(out, &header)?,
            Err(error) => out.fact("filter", "cannot be used", error.to_string())?,
        }
    }
    Ok(())
}

/// The kind and its parameters in words.
fn kind_words(header: &Header) -> String {
    match header.kind {
        Kind::Bloom => format!("Bloom, {} bits, {} probes", count(header.size), header.probes),
        Kind::BlockedBloom => format!(
            "blocked Bloom, {} of 64 bytes, {} probes",
            counted(header.size, "line", "lines"),
            header.probes
        ),
        Kind::Ribbon if header.answers_only_maybe() => {
            "ribbon that could not be built: it says \"maybe\" of every key".into()
        }
        Kind::Ribbon => {
            let layers = header.buckets.iter().filter(|&&buckets| buckets > 0).count() as u64;
            let columns: Vec<_> =
                header.column_groups.iter().filter(|&&c| c > 0).map(u8::to_string).collect();
            format!(
                "ribbon, {} and a last one, columns {}",
                counted(layers, "bumped layer", "bumped layers"),
                columns.join(" + ")
            )
        }
    }
}

/// The predicted false-positive rate.
pub(super) fn rate(header: &Header) -> f64 {
    header.rate as f64 / 2f64.powi(64)
}

fn per_key(bytes: u64, header: &Header) -> f64 {
    8.0 * bytes as f64 / header.key_count.max(1) as f64
}

fn section_bytes(header: &Header) -> u64 {
    header.sections.iter().fold(0, |sum, section| sum.saturating_add(section.len))
}

fn facts_in_short(out: &mut Out<'_>, header: &Header) -> Result {
    let size = format!("{}, {:.2} bits per key", bytes(header.block_len), per_key(header.block_len, header));
    out.fact("filter", kind_words(header), format!("{size}, rate {} predicted", percent(rate(header))))
}

/// What the summary of a filter says.
fn facts(out: &mut Out<'_>, header: &Header) -> Result {
    out.fact("kind", kind_words(header), "")?;
    out.fact("owner", header.owner, "file id of its table")?;
    out.fact("keys", count(header.key_count), "")?;
    let (sections, whole) = (section_bytes(header), header.block_len);
    if header.key_count == 0 {
        return out.fact("size", bytes(whole), "");
    }
    out.fact("size", bytes(whole), format!("{} in sections", bytes(sections)))?;
    let each = (per_key(sections, header), per_key(whole, header));
    let in_all = format!("in sections; {:.3} with header and page checksums", each.1);
    out.fact("bits per key", format!("{:.3}", each.0), in_all)?;
    let predicted = rate(header);
    let one_in = match predicted > 0.0 {
        true => format!("predicted, one in {}", count((1.0 / predicted).round() as u64)),
        false => "predicted".into(),
    };
    out.fact("rate", Value::Share(predicted), one_in)?;
    let least = -predicted.log2();
    if least.is_finite() && least > 0.0 {
        let above = |bits: f64| format!("{:+.2} %", 100.0 * (bits / least - 1.0));
        let distance = format!(
            "bits per key at least for that rate; {} in sections, {} with all",
            above(each.0),
            above(each.1)
        );
        out.fact("log2(1/rate)", format!("{least:.3}"), distance)?;
    }
    Ok(())
}

/// Tells the filter at `at` of a file; the blocks end at `end`. Gives its length, `None` if that is not known.
pub(super) fn tell(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    (at, end): (u64, u64),
    label: &str,
    picked: bool,
) -> Result<Option<u64>> {
    let first = window.get(at, (end - at).min(HEADER_BYTES_MAX as u64))?.to_vec();
    let all = picked || out.detail == Detail::Bytes;
    let (len, header) = match (block_len(&first), Header::decode(&first)) {
        (Ok(len), header) if len <= end - at => (len, header),
        (Ok(len), _) => {
            let detail = format!("{len} bytes, but only {} are left", end - at);
            tell_header(out, at, &first, all, label)?;
            out.damage(at + 32, "filter block length", detail)?;
            return Ok(None);
        }
        (Err(error), _) => {
            tell_header(out, at, &first, all, label)?;
            out.refused(at, &error)?;
            return Ok(None);
        }
    };
    out.report.accounted += len;
    let header = match header {
        Ok(header) => header,
        Err(error) => {
            out.group(Place::File(at), len, label.to_owned(), "", |_| Ok(()))?;
            out.refused(at, &error)?;
            return Ok(Some(len));
        }
    };
    let survey = Survey::of(window, at, header)?;
    let note = kind_words(&survey.header);
    out.group(Place::File(at), len, label.to_owned(), note, |out| {
        out.showing(all, |out| tell_fields(out, at, &first))?;
        survey.tell(out, window, at, all)
    })?;
    survey.judge(out, at)?;
    Ok(Some(len))
}

fn tell_header(out: &mut Out<'_>, at: u64, first: &[u8], all: bool, label: &str) -> Result {
    let len = first.len().min(HEADER_BYTES);
    out.group(Place::File(at), len as u64, label.to_owned(), "damaged", |out| {
        out.showing(all, |out| tell_fields(out, at, first))
    })
}

/// Tells the fields of a header, which need not be right.
fn tell_fields(out: &mut Out<'_>, at: u64, first: &[u8]) -> Result {
    let header = &first[..first.len().min(HEADER_BYTES)];
    match tell_fields_of(out, at, header) {
        Ok(()) | Err(Halt::Decode(_)) => Ok(()),
        Err(Halt::Stop(stop)) => Err(stop),
    }
}

fn tell_fields_of(out: &mut Out<'_>, at: u64, header: &[u8]) -> Result<(), Halt> {
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
