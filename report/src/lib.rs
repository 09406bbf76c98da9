//! A page that shows a SieveDB store: its tree to scale, its filters, its memory and its work.
//!
//! The page is one self-contained HTML file: it opens without a network, in a light or a dark
//! theme, on a phone, and on paper. `sievedb report` and `sievedb-dump report` write it from the shell. A program
//! that has a store open writes the same page with the answers of its filters:
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
//! The store does not depend on this crate, so a program that only embeds the store does not compile it.
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
//! | `svg`, `units` | elements of SVG; numbers, keys and times for people |
//!
//! A page has at most 2,000 cells and one for each run, and at most 64 bytes of each key, so it stays under 1 MB.
//! Everything that comes from a store is escaped. The script of the page is in `templates/hover.js`; the page forbids
//! every other script and every request.

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

/// Writes the page of an open store to the file at `path`. An existing file is replaced.
///
/// # Errors
///
/// The errors of [`Report::of_db`], and of writing the file.
pub fn write(db: &Db, path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::write(path, Report::of_db(db)?.page())
}
