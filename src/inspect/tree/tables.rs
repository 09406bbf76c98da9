//! Reads the shape of tables and filters.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use super::shape::{FilterShape, OriginShape, RunShape, TableShape};
use crate::filename::FileName;
use crate::filter::Header;
use crate::filter::header::HEADER_BYTES;
use crate::fs::Fs;
use crate::inspect::file::{Head, Window};
use crate::inspect::filter_block;
use crate::inspect::output::{FileDamage, Stop};
use crate::inspect::table::Ends;
use crate::limits::BOUND_BYTES_MAX;
use crate::manifest::state::TablePlace;
use crate::sorting::sort_by;
use crate::table_meta::{FilterRef, TableMeta};

pub(super) struct Shapes<'a> {
    pub(super) fs: &'a dyn Fs,
    pub(super) dir: &'a Path,
    pub(super) damage: Vec<(PathBuf, FileDamage)>,
}

impl Shapes<'_> {
    pub(super) fn runs<'t>(&mut self, tables: impl Iterator<Item = &'t TablePlace>) -> Vec<RunShape> {
        let rank = |place: &TablePlace| (place.level, Reverse(place.run));
        let mut tables: Vec<_> = tables.map(|place| (rank(place), self.table(&place.meta))).collect();
        sort_by(&mut tables, |(a, one), (b, other)| {
            a.cmp(b).then_with(|| (&one.smallest, one.number).cmp(&(&other.smallest, other.number)))
        });
        let mut runs: Vec<RunShape> = Vec::new();
        for ((level, Reverse(run)), table) in tables {
            match runs.last_mut().filter(|last| (last.level, last.run) == (level, run)) {
                Some(last) => last.tables.push(table),
                None => runs.push(RunShape { level, run, bucket: None, tables: vec![table] }),
            }
        }
        runs
    }

    fn table(&mut self, meta: &TableMeta) -> TableShape {
        let path = FileName::Table(meta.number).path(self.dir);
        match self.fs.open(&path).and_then(|file| file.len()) {
            Ok(len) if len != meta.len => {
                let detail = format!("the manifest states {}, found {len}", meta.len);
                self.lose(&path, len.min(meta.len), "file length", detail);
            }
            Ok(_) => {}
            Err(error) => self.lose(&path, 0, "table", format!("cannot be opened: {error}")),
        }
        TableShape {
            number: meta.number,
            bytes: meta.len,
            entries: meta.entries,
            tombstones: meta.tombstones,
            keys: meta.keys,
            spans: meta.spans.as_ref().map_or(0, |spans| spans.count),
            smallest: trimmed(&meta.smallest),
            largest: trimmed(&meta.largest),
            seqnos: (meta.seqno_min, meta.seqno_max),
            filters: meta.filters.iter().map(|filter| self.filter(meta.number, filter)).collect(),
            origin: None,
            residency: None,
        }
    }

    pub(super) fn unplaced(&mut self, number: u64) -> Option<TableShape> {
        let path = FileName::Table(number).path(self.dir);
        match self.read_meta(number, &path) {
            Ok((meta, origin)) => Some(TableShape { origin, ..self.table(&meta) }),
            Err(detail) => {
                self.lose(&path, 0, "table", detail);
                None
            }
        }
    }

    fn read_meta(&self, number: u64, path: &Path) -> Result<(TableMeta, Option<OriginShape>), String> {
        let described = |stop: Stop| stop.to_string();
        let file = self.fs.open(path).map_err(|error| format!("cannot be opened: {error}"))?;
        let mut window = Window::new(&*file).map_err(described)?;
        let head = Head::read(&mut window).map_err(described)?.ok_or("it is none")?;
        let ends = Ends::read(&mut window, &head, None).map_err(described)?;
        let properties = ends.properties.map_err(|error| error.to_string())?;
        let footer_checksum = ends.footer.map_or(0, |footer| footer.1);
        let origin = properties.origin.as_deref().map(|origin| OriginShape {
            keyspace: origin.keyspace,
            name: origin.name.clone(),
            replaced: origin.replaced.clone(),
        });
        Ok((properties.to_meta(number, ends.file_id, window.len(), footer_checksum), origin))
    }

    fn filter(&mut self, table: u64, filter: &FilterRef) -> FilterShape {
        let path = filter.file.map_or(FileName::Table(table), FileName::Filter).path(self.dir);
        let found = self.fs.open(&path).and_then(|file| {
            let len = file.len()?.saturating_sub(filter.offset).min(HEADER_BYTES as u64);
            let mut bytes = vec![0; len as usize];
            file.read_at(&mut bytes, filter.offset)?;
            Ok(Header::decode(&bytes))
        });
        let found = match found {
            Ok(Ok(header)) => Some((header.kind, filter_block::rate(&header))),
            Ok(Err(error)) => {
                self.lose(&path, filter.offset.saturating_add(error.offset), "filter", error.to_string());
                None
            }
            Err(_) => None,
        };
        FilterShape { file: filter.file, bytes: filter.len, found }
    }

    fn lose(&mut self, path: &Path, offset: u64, what: &'static str, detail: String) {
        self.damage.push((path.to_path_buf(), FileDamage::new(offset, what, detail)));
    }
}

fn trimmed(bound: &[u8]) -> Vec<u8> {
    bound[..bound.len().min(BOUND_BYTES_MAX)].to_vec()
}
