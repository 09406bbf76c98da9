//! What is this file? The first bytes say it, and the walker of its kind does the rest.

use super::event::{Kind, Place, Report, Sink, Value};
use super::head::{self, Head};
use super::out::{Out, Result, Stop};
use super::view::View;
use super::window::{InMemory, Window};
use super::{filter, log, manifest, table};
use crate::fs::ReadFile;

/// Describes a file: what it is, and what `view` asks for of its bytes.
///
/// Reads it once; a log or a manifest twice, since the summary that comes first is made from all of it.
///
/// # Errors
///
/// [`Stop::Read`] if the file cannot be read, [`Stop::Sink`] if the sink failed. Nothing that the file contains is an
/// error: it is told as [`Event::Damage`](super::Event::Damage), and counted in the [`Report`].
pub fn describe(file: &dyn ReadFile, view: &View, sink: &mut dyn Sink) -> Result<Report, Stop> {
    let mut window = Window::new(file)?;
    let mut out = Out::new(sink, view, window.len());
    match identify(&mut window, view)? {
        Found::Headed(head) => {
            out.begin(head.kind())?;
            describe_headed(&mut out, &mut window, &head)?;
        }
        Found::FilterBlock => {
            out.begin(Kind::FilterBlock)?;
            filter::describe_block(&mut out, &mut window)?;
        }
        Found::Lock => {
            out.begin(Kind::Lock)?;
            out.fact("holds", "nothing", "it is there to be locked by who works on the store")?;
        }
        Found::Unknown => {
            out.begin(Kind::Unknown)?;
            unknown(&mut out, &mut window)?;
        }
    }
    out.end()
}

/// [`describe`] for bytes in memory.
///
/// # Errors
///
/// [`Stop::Sink`] if the sink failed.
pub fn describe_bytes(bytes: &[u8], view: &View, sink: &mut dyn Sink) -> Result<Report, Stop> {
    describe(&InMemory(bytes), view, sink)
}

/// Describes the filters that a file holds and nothing else of it: those of a table, or the one that it is.
///
/// Where a table does not say any more where its filters are, they are looked for.
///
/// # Errors
///
/// As [`describe`].
pub fn describe_filter(file: &dyn ReadFile, view: &View, sink: &mut dyn Sink) -> Result<Report, Stop> {
    let mut window = Window::new(file)?;
    match identify(&mut window, view)? {
        Found::Headed(head) if head.kind() == Kind::Table => {
            let mut out = Out::new(sink, view, window.len());
            out.begin(Kind::Table)?;
            out.report.partial = true;
            filter::describe_of_table(&mut out, &mut window, &head)?;
            out.end()
        }
        _ => describe(file, view, sink),
    }
}

enum Found {
    Headed(Head),
    FilterBlock,
    Lock,
    Unknown,
}

fn identify(window: &mut Window<'_>, view: &View) -> Result<Found> {
    if let Some(head) = Head::read(window)? {
        return Ok(Found::Headed(head));
    }
    if window.get(0, 8)? == crate::filter::header::MAGIC {
        return Ok(Found::FilterBlock);
    }
    let is_lock = window.len() == 0 && view.name.as_deref() == Some("LOCK");
    Ok(if is_lock { Found::Lock } else { Found::Unknown })
}

fn describe_headed(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    if head.is_newer() {
        head.facts(out)?;
        head.tell(out)?;
        return Ok(());
    }
    match head.kind() {
        Kind::Table => table::describe(out, window, head),
        Kind::Log => log::describe(out, window, head),
        Kind::Manifest => manifest::describe(out, window, head),
        Kind::Current => head::describe_current(out, window, head),
        Kind::FilterFile => filter::describe_file(out, window, head),
        _ => {
            head.facts(out)?;
            head.tell(out)
        }
    }
}

fn unknown(out: &mut Out<'_>, window: &mut Window<'_>) -> Result {
    let first = window.get(0, 32)?.to_vec();
    out.leaf(Place::File(0), &first, "first bytes", Value::None, "")?;
    let detail = match first.len() {
        0 => "the file is empty, and is not called LOCK".to_owned(),
        _ => "neither the magic of a file of a store nor that of a filter block".to_owned(),
    };
    out.damage(0, "file magic", detail)
}
