//! Selects the walker of a file.

use crate::codec::hex_and_text;
use crate::fs::ReadFile;
use crate::inspect::file::{
    Head, InMemory, Window, describe_backup_index, describe_current, describe_reserve,
};
use crate::inspect::framed::{log, manifest};
use crate::inspect::output::{Kind, Out, Place, Report, Result, Sink, Stop, Value, View, counted};
use crate::inspect::{filter_block, table};

/// Describes the parts of a file that `view` selects. A log or a manifest is read twice, because the summary comes
/// first.
///
/// # Errors
///
/// [`Stop::Read`] if the file cannot be read, [`Stop::Sink`] if the sink failed. Damage is an
/// [`Event::Damage`](super::Event::Damage), counted in the [`Report`].
pub fn describe(file: &dyn ReadFile, view: &View, sink: &mut dyn Sink) -> Result<Report, Stop> {
    let mut window = Window::new(file)?;
    let out = Out::new(sink, view, window.len());
    describe_to(out, &mut window, view)
}

pub(super) fn describe_to(mut out: Out<'_>, window: &mut Window<'_>, view: &View) -> Result<Report> {
    let (kind, head) = identify(window, view)?;
    out.begin(kind)?;
    match &head {
        Some(head) => describe_headed(&mut out, window, head)?,
        None if kind == Kind::FilterBlock => filter_block::describe_block(&mut out, window)?,
        None if kind == Kind::Lock => {
            out.fact("holds", "nothing", "it is there to be locked by who works on the store")?;
        }
        None if kind == Kind::Reserve => describe_reserve(&mut out, window)?,
        None => unknown(&mut out, window)?,
    }
    out.end()
}

/// The kind of a file, from its first bytes. `LOCK` and `RESERVE` are recognized by their names.
///
/// # Errors
///
/// [`Stop::Read`] if the file cannot be read.
pub fn kind_of(file: &dyn ReadFile, view: &View) -> Result<Kind, Stop> {
    Ok(identify(&mut Window::new(file)?, view)?.0)
}

/// [`describe`] for bytes in memory.
///
/// # Errors
///
/// [`Stop::Sink`] if the sink failed.
pub fn describe_bytes(bytes: &[u8], view: &View, sink: &mut dyn Sink) -> Result<Report, Stop> {
    describe(&InMemory(bytes), view, sink)
}

/// Describes only the filters of a table or a filter file, even if the table no longer states their positions.
///
/// # Errors
///
/// As [`describe`].
pub fn describe_filter(file: &dyn ReadFile, view: &View, sink: &mut dyn Sink) -> Result<Report, Stop> {
    let mut window = Window::new(file)?;
    let (kind, head) = identify(&mut window, view)?;
    if matches!(kind, Kind::FilterFile | Kind::FilterBlock | Kind::Unknown) {
        return describe(file, view, sink);
    }
    let mut out = Out::new(sink, view, window.len());
    out.begin(kind)?;
    out.report.partial = true;
    match head.filter(|_| kind == Kind::Table) {
        Some(head) => table::describe_filters(&mut out, &mut window, &head)?,
        None => out.fact("filter", "none", "")?,
    }
    out.end()
}

fn identify(window: &mut Window<'_>, view: &View) -> Result<(Kind, Option<Head>)> {
    if let Some(head) = Head::read(window)? {
        return Ok((head.kind(), Some(head)));
    }
    if window.get(0, 8)? == crate::filter::header::MAGIC {
        return Ok((Kind::FilterBlock, None));
    }
    let kind = match view.name.as_deref() {
        Some("LOCK") if window.len() == 0 => Kind::Lock,
        Some("RESERVE") => Kind::Reserve,
        _ => Kind::Unknown,
    };
    Ok((kind, None))
}

fn describe_headed(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    match head.kind() {
        _ if head.is_newer() => {}
        Kind::Table => return table::describe(out, window, head),
        Kind::Log => return log::describe(out, window, head),
        Kind::Manifest => return manifest::describe(out, window, head),
        Kind::Current => return describe_current(out, window, head),
        Kind::FilterFile => return filter_block::describe_file(out, window, head),
        Kind::BackupIndex => return describe_backup_index(out, window, head),
        _ => {}
    }
    head.facts(out)?;
    head.describe(out)
}

fn unknown(out: &mut Out<'_>, window: &mut Window<'_>) -> Result {
    let first = window.get(0, 32)?.to_vec();
    let detail = match first.first_chunk::<8>() {
        None if first.is_empty() => "it is empty, and not called LOCK".to_owned(),
        None => {
            format!("it is {} long: {}", counted(first.len() as u64, "byte", "bytes"), hex_and_text(&first))
        }
        Some(magic) => format!(
            "it begins with {}, the magic of neither a file of a store nor a filter block",
            hex_and_text(magic)
        ),
    };
    if !first.is_empty() {
        out.leaf(Place::File(0), &first, "first bytes", Value::None, "")?;
    }
    out.damage(0, "file magic", detail)
}
