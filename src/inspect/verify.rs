//! Collects the damage of a file for [`Db::verify`](crate::Db::verify).
//!
//! Also compares a table with its record in the manifest, and reads its filter files.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, InFile};
use crate::file_header::FileKind;
use crate::filename::FileName;
use crate::filter::header::DOMAIN_WHOLE_KEY;
use crate::fs::ReadFile;
use crate::inspect::describe::describe;
use crate::inspect::file::{Head, Window};
use crate::inspect::framed::{self, log, manifest};
use crate::inspect::output::{Detail, Event, Keys, Out, Sink, Stop, View};
use crate::inspect::table::{self, Ends, Held, Stated, open_filters};
use crate::table::{TableContext, read_filter_of};
use crate::table_meta::{FilterRef, TableMeta};

/// More than the number of blocks in a table of usual size.
const DAMAGE_MAX: usize = 100_000;

/// Limits the memory for keys: a hostile index can store long keys in few bytes.
const KEY_BYTES_LISTED_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) damage: Vec<(Error, Option<Keys>)>,
    pub(crate) omitted: u64,
    pub(crate) filters: u64,
    pub(crate) bounds: Option<Keys>,
    key_bytes: usize,
}

impl Findings {
    fn add(&mut self, error: Error, keys: Option<&Keys>) {
        let key_bytes = self.key_bytes + keys.map_or(0, |keys| keys.0.len() + keys.1.len());
        if self.damage.len() < DAMAGE_MAX && key_bytes <= KEY_BYTES_LISTED_MAX {
            self.key_bytes = key_bytes;
            self.damage.push((error, keys.cloned()));
        } else {
            self.omitted += 1;
        }
    }
}

struct Collector<'a> {
    path: &'a Path,
    findings: &'a mut Findings,
}

impl Sink for Collector<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if let Event::Damage(damage) = event {
            self.findings.add(damage.error(self.path), damage.keys.as_ref());
        }
        Ok(())
    }

    fn unreadable(&mut self, _: u64, source: io::Error, keys: Option<&Keys>) -> Result<(), Stop> {
        self.findings.add(Error::io("read", self.path, source), keys);
        Ok(())
    }
}

fn shape() -> View {
    View::new().detail(Detail::Shape)
}

/// All bytes are read from the disk if `ctx`, with its caches, has no other user.
pub(crate) fn verify_table(ctx: &Arc<TableContext>, meta: &TableMeta) -> Findings {
    let path = FileName::Table(meta.number).path(&ctx.dir);
    let mut findings = Findings::default();
    let Stated { bounds, .. } = Stated::of(meta, ctx.hash_seed);
    let open = || ctx.fs.open(&path).map_err(|source| Error::io("open", &path, source));
    let walked = ctx.files.get_or_open(meta.number, open).map(|file| {
        Verification { ctx, meta, path: &path, bounds: &bounds, findings: &mut findings }.run(&*file)
    });
    match walked {
        Ok(Ok(())) => {}
        Ok(Err(stop)) => findings.add(stop.error(&path), Some(&bounds)),
        Err(error) => findings.add(error, Some(&bounds)),
    }
    findings
}

/// Verifies a file in which a reader found `met`. `end` is the end of a log by the manifest; later bytes are not read.
pub(crate) fn verify_framed(file: &dyn ReadFile, path: &Path, end: Option<u64>, met: Error) -> Findings {
    let mut findings = Findings::default();
    if let Err(stop) = walk_framed(file, path, end, &mut findings) {
        findings.add(stop.error(path), None);
    }
    let first = findings.damage.first().map(|(first, _)| first);
    if !first.is_some_and(|first| is_same(first, &met)) {
        if matches!(met, Error::Corruption { what: "closed log" | "cut log", .. }) && first.is_some() {
            findings.damage.remove(0);
        }
        findings.damage.insert(0, (met, None));
    }
    findings
}

fn walk_framed(
    file: &dyn ReadFile,
    path: &Path,
    end: Option<u64>,
    findings: &mut Findings,
) -> Result<(), Stop> {
    let mut window = Window::of_first(file, end.unwrap_or(u64::MAX))?;
    let head = Head::read_any(&mut window)?;
    let Ok(header) = &head.decoded else { return Ok(()) };
    let mut collector = Collector { path, findings };
    let mut out = Out::new(&mut collector, &shape(), window.len()).without_limits();
    out.showing(false, |out| {
        let mut ending = framed::ending(out, &mut window, (&head.file_id, header.kind))?;
        ending.promise(end.unwrap_or(0));
        match header.kind {
            FileKind::Log => log::walk(out, &mut window, &head, &ending),
            FileKind::Manifest => manifest::walk(out, &mut window, &head, &ending).map(drop),
            _ => Ok(()),
        }
    })
}

fn is_same(found: &Error, met: &Error) -> bool {
    match (found, met) {
        (Error::Corruption { file, what, .. }, Error::Corruption { file: other_file, what: other, .. })
        | (Error::Unsupported { file, what, .. }, Error::Unsupported { file: other_file, what: other, .. }) => {
            (file, what) == (other_file, other)
        }
        (Error::Io { .. }, Error::Io { .. }) => true,
        _ => false,
    }
}

struct Verification<'a> {
    ctx: &'a Arc<TableContext>,
    meta: &'a TableMeta,
    path: &'a Path,
    bounds: &'a Keys,
    findings: &'a mut Findings,
}

impl Verification<'_> {
    fn run(mut self, file: &dyn ReadFile) -> Result<(), Stop> {
        // All these bytes are one piece of damage and are not read.
        let len = Window::new(file)?.len();
        let mut window = Window::of_first(file, self.meta.len)?;
        let head = Head::read_any(&mut window)?;
        let ends = Ends::read(&mut window, &head, Some(Stated::of(self.meta, self.ctx.hash_seed)))?;
        self.findings.bounds = ends.bounds();
        self.compare(&head, &ends, len);
        let (named, unnamed) = self.filters(&ends);
        let (paths, beside): (Vec<PathBuf>, Vec<Held>) = self.open_beside(named).into_iter().unzip();
        let Self { path, findings, .. } = self;
        let mut collector = Collector { path, findings };
        let mut out = Out::new(&mut collector, &shape(), window.len()).without_limits();
        let own = open_filters(&out, &window, &ends)?;
        let filters = own.len() + beside.len();
        let held = own.into_iter().chain(beside).collect();
        let held = out.showing(false, |out| table::walk(out, &mut window, &head, &ends, held))?;
        findings.filters = filters as u64;
        unnamed.into_iter().for_each(|error| findings.add(error, None));
        for (path, held) in paths.iter().rev().zip(held.iter().rev()) {
            if let Some((error, keys)) = held.denial() {
                findings.add(error.in_file(path, 0), Some(keys));
            }
        }
        Ok(())
    }

    fn add(&mut self, offset: u64, what: &'static str, detail: impl Into<String>) {
        self.findings.add(Error::corruption(self.path, offset, what, detail), Some(self.bounds));
    }

    fn compare(&mut self, head: &Head, ends: &Ends, len: u64) {
        let meta = self.meta;
        if len != meta.len {
            let detail = format!("expected {}, found {len}", meta.len);
            self.add(len.min(meta.len), "file length", detail);
        }
        if let Ok(header) = &head.decoded {
            if !self.ctx.store_ids.contains(&header.store_id) {
                self.add(16, "store id", "the file is of another store");
            }
            if header.file_id != meta.file_id {
                self.add(32, "file id", "differs from the manifest");
            }
        }
        let Ok((footer, checksum)) = &ends.footer else { return };
        if *checksum != meta.footer_checksum {
            let detail = format!("expected {:08x}, found {checksum:08x}", meta.footer_checksum);
            self.add(ends.blocks_end, "footer checksum", detail);
        }
        if let Ok(properties) = &ends.properties
            && let Err(error) = properties.agree_with(meta)
        {
            self.findings.add(error.in_file(self.path, footer.properties.offset), Some(self.bounds));
        }
    }

    fn filters(&self, ends: &Ends) -> (Vec<FilterRef>, Vec<Error>) {
        let named = ends.properties.as_ref().map(|properties| &properties.filters);
        let (mut beside, mut wrong, mut places) = (Vec::new(), Vec::new(), HashSet::new());
        for filter in self.meta.filters.iter().filter(|filter| filter.domain == DOMAIN_WHOLE_KEY) {
            let path = match filter.file {
                Some(number) => FileName::Filter(number).path(&self.ctx.dir),
                None => self.path.to_path_buf(),
            };
            let corrupt = |detail| Error::corruption(&path, filter.offset, "filter handle", detail);
            if !places.insert((filter.file, filter.offset)) {
                wrong.push(corrupt("the manifest names it twice"));
            } else if filter.file.is_some() {
                beside.push(filter.clone());
            } else if named.is_ok_and(|named| !named.contains(filter)) {
                wrong.push(corrupt("the manifest names it, the properties name none like it"));
            }
        }
        (beside, wrong)
    }

    fn open_beside(&mut self, filters: Vec<FilterRef>) -> Vec<(PathBuf, Held)> {
        let mut opened = Vec::new();
        for filter in filters {
            let Some(number) = filter.file else { continue };
            let path = FileName::Filter(number).path(&self.ctx.dir);
            let before = self.findings.damage.len();
            if let Ok(file) = self.ctx.fs.open(&path) {
                let mut collector = Collector { path: &path, findings: self.findings };
                if let Err(stop) = describe(&*file, &shape(), &mut collector) {
                    self.findings.add(stop.error(&path), None);
                }
            }
            match read_filter_of(self.ctx, self.meta, &filter) {
                Ok(found) => opened.push((path, Held::new(found, filter.offset))),
                Err(error) if self.findings.damage.len() == before => self.findings.add(error, None),
                Err(_) => {}
            }
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_header::{FileHeader, HEADER_BYTES};
    use crate::fs::{Fs, MemFs};
    use crate::wal::{FramedWriter, RecordKind};

    #[test]
    fn unlisted_damage_of_a_log_is_counted_and_a_torn_end_is_neither() {
        let (fs, path) = (MemFs::new(), Path::new("/db/log"));
        fs.create_dir(Path::new("/db")).unwrap();
        let header = FileHeader::new(FileKind::Log, [1; 16], [2; 16]);
        let mut writer = FramedWriter::create(&fs, path, header).unwrap();
        for number in 0..2 * DAMAGE_MAX + 1000 {
            writer.append_record(RecordKind::Promise, &[7; 16]).unwrap();
            if number == 2 {
                writer.sync().unwrap();
            }
        }
        writer.sync().unwrap();
        let good = fs.files(path)[0].1.clone();
        let first = HEADER_BYTES + 32;
        for (damaged, listed, omitted) in [(400, 400, 0), (DAMAGE_MAX + 99, DAMAGE_MAX, 99)] {
            let mut bytes = good.clone();
            (0..damaged).for_each(|index| bytes[first + 64 * index + 20] ^= 1);
            let end = bytes.len() - 10;
            bytes[end] ^= 1;
            fs.overwrite(path, bytes);
            let file = fs.open(path).unwrap();
            let met = Error::corruption(path, first as u64, "log fragment", "");
            let findings = verify_framed(&*file, path, None, met);
            let fragments = findings
                .damage
                .iter()
                .filter(|(error, _)| matches!(error, Error::Corruption { what: "log fragment", .. }));
            assert_eq!((fragments.count(), findings.omitted), (listed, omitted), "{damaged}");
        }
    }
}
