use std::io::{self, Write};
use std::path::Path;

use serde_json::Value as Json;
use sievedb::fs::ReadFile;
use sievedb_report::FilePage;
use sievedb_sketches::{DecodeErrorKind, MAGIC, Summary};

use super::opening::stopped;
use crate::escape::printable;
use crate::failure::{Failure, Result};
use crate::json::{Object, put_bytes};
use crate::units::share;

pub(super) fn is_sketch(path: &Path, file: &dyn ReadFile) -> Result<bool> {
    let mut magic = [0; MAGIC.len()];
    let unreadable = |source| Failure::io(format!("read {}", path.display()), source);
    if file.len().map_err(unreadable)? < magic.len() as u64 {
        return Ok(false);
    }
    file.read_at(&mut magic, 0).map_err(unreadable)?;
    Ok(magic == MAGIC)
}

fn read(path: &Path) -> Result<Summary> {
    let bytes =
        std::fs::read(path).map_err(|source| Failure::io(format!("read {}", path.display()), source))?;
    sievedb_sketches::describe(&bytes).map_err(|error| {
        let newer = matches!(error.kind, DecodeErrorKind::Unsupported { .. });
        let verdict = if newer { "is newer than this program" } else { "is corrupt" };
        Failure::Refused(format!("{} {verdict}: {error}", path.display()))
    })
}

pub(super) fn page(path: &Path) -> Result<FilePage> {
    let summary = read(path)?;
    let page = FilePage::new(path, &format!("sketch: {}", summary.kind), summary.body_bytes);
    let page = summary.facts.iter().fold(page, |page, (name, value)| page.fact(name, value));
    Ok(match summary.predicted_rate {
        Some(rate) => page.fact("predicted rate", &share(rate)),
        None => page,
    })
}

pub(super) fn describe(path: &Path, json: bool, secrets: bool) -> Result<()> {
    let summary = read(path)?;
    let printed =
        if json { print_json(path, &summary, secrets) } else { print_text(path, &summary, secrets) };
    printed.map_err(|error| stopped(path, sievedb::inspect::Stop::Sink(error)))
}

fn print_text(path: &Path, summary: &Summary, secrets: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{}: {summary}", printable(&path.display().to_string()))?;
    if secrets {
        writeln!(out, "  {:<16}{:016x}", "seed", summary.seed)?;
    }
    out.flush()
}

fn print_json(path: &Path, summary: &Summary, secrets: bool) -> io::Result<()> {
    let mut object = Object::new();
    let mut put = |name: &str, value: Json| drop(object.insert(name.to_owned(), value));
    put("event", "sketch".into());
    put("kind", summary.kind.to_string().into());
    put("body_bytes", summary.body_bytes.into());
    for (name, value) in &summary.facts {
        put(&name.replace(' ', "_"), value.as_str().into());
    }
    if let Some(rate) = summary.predicted_rate {
        put("predicted_rate", rate.into());
    }
    if secrets {
        put("seed", summary.seed.into());
    }
    put_bytes(&mut object, "file", path.as_os_str().as_encoded_bytes());
    let mut out = io::stdout().lock();
    writeln!(out, "{}", Json::Object(object))?;
    out.flush()
}
