//! A page that shows a SieveDB store: its tree to scale, its filters, its memory and its work.
//!
//! `sievedb report` and `sievedb-dump report` write the page from the shell. A process with an open store can add the
//! answers of its filters:
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let (store, page) = (dir.path().join("store"), dir.path().join("report.html"));
//! let db = sievedb::Db::open(store)?;
//! db.put("k", "v")?;
//! db.flush()?;
//! sievedb_report::write(&db, &page)?;
//! # assert!(std::fs::read_to_string(&page).unwrap().starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | noun |
//! |---|---|
//! | `report` | the input of a page: an open store, or the files of one |
//! | `page` | the page, whose text is in `templates/` |
//! | `cells`, `bars` | tables as cells of a drawing; the runs of a keyspace, drawn to scale |
//! | `levels` | the filters of a keyspace by level |
//! | `observed`, `history` | counted answers of filters; statistics over time |
//! | `chart` | a chart of bits per key against a quantity |
//! | `plan` | memory against wasted reads, now and at best |
//! | `activity` | memory by part, amplification, work in the background |
//! | `hints` | the most useful action |
//! | `file_page` | the page of one file: a table, a filter, a sketch |
//! | `svg`, `units` | elements of SVG; numbers, keys and times as text |
//!
//! A page stays below 1 MB, and forbids requests and all scripts except `templates/hover.js`. All text from a store
//! is escaped.

mod activity;
mod bars;
mod cells;
mod chart;
mod file_page;
mod hints;
mod history;
mod levels;
mod observed;
mod page;
mod plan;
mod report;
pub mod svg;
#[cfg(test)]
mod testing;
pub mod units;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use file_page::FilePage;
pub use history::History;
pub use report::Report;

use std::io;
use std::path::Path;

use sievedb::Db;

/// Writes the page of an open store to the file at `path`, replacing it.
///
/// # Errors
///
/// The errors of [`Report::of_db`] and of writing the file.
pub fn write(db: &Db, path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::write(path, Report::of_db(db)?.page())
}
