//! The printer of files.
//!
//! # Strategy
//!
//! The first bytes choose the view: detail, one block or all, keys, values, secrets, a name. The next byte chooses 0
//! *raw*, or 1 *resealed*, with checksums recomputed by the kind in the header. For comparison, the file is also
//! described to the last byte.
//!
//! # Invariants
//!
//! - Describing ends and never fails. The verdict does not depend on the view, or on whether only the filters are
//!   described.
//! - In an undamaged file, every byte is described or in a torn end.
//! - If a file is described as intact and complete, readers and `verify` accept it. If a table is described as damaged,
//!   `verify` finds damage too.

use std::io::{self, Write};
use std::path::Path;

use super::seal::{self, Mended};
use super::{log, manifest, table};
use crate::file_header::{FileHeader, FileKind};
use crate::filter::fuzzing::Input;
use crate::filter::{Expect, Filter};
use crate::fs::{Fs, MemFs};
use crate::inspect::{self, Detail, Entries, Event, Kind, Report, Text, Value, View};
use crate::table::FILTER_OFFSET;
use crate::wal::ContentReader;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let view = view(&mut input);
    let resealed = input.flag();
    let mut file = input.rest().to_vec();
    if resealed {
        reseal(&mut file);
    }
    let seen = describe(&file, &view);
    filters(&file, &view);
    let whole = describe(&file, &View { name: view.name.clone(), ..View::new().detail(Detail::Bytes) });
    assert_eq!((seen.kind, seen.len), (whole.kind, file.len() as u64));
    assert!(whole.accounted <= whole.len && seen.accounted <= seen.len);
    assert_eq!(whole.is_intact(), whole.first_damage.is_none());
    if !whole.is_intact() {
        return;
    }
    assert!(
        whole.accounted + whole.torn_bytes == whole.len || matches!(whole.kind, Kind::Unknown),
        "{whole:?}"
    );
    assert!(seen.is_intact() || view.block.is_some(), "a view finds no more damage than there is");
    match whole.kind {
        Kind::Table => {
            let seed = ask_filter(&file);
            let faults = table::faults(file, seed);
            let fault = faults.first();
            assert!(fault.is_none() || whole.partial, "the printer misses what the reader finds: {fault:?}");
        }
        Kind::Log => {
            let (records, torn_bytes) = log::taken(&file).expect("the reader comes to the end");
            assert_eq!(torn_bytes, whole.torn_bytes);
            let mut contents = ContentReader::default();
            for (kind, _, bytes) in &records {
                contents.check(*kind, bytes).expect("recovery takes every record");
            }
        }
        Kind::Manifest => {
            let manifest = manifest::read(&file).expect("the reader takes every edit");
            assert_eq!(log::torn_bytes(manifest.ending), whole.torn_bytes);
            assert_eq!(manifest.state.faults().next(), None);
        }
        Kind::FilterBlock => assert!(is_filter(&file)),
        Kind::FilterFile => {
            assert!(FileHeader::decode_kind(&file, FileKind::Filter).is_ok());
            assert!(file.get(FILTER_OFFSET as usize..).is_some_and(is_filter));
        }
        _ => {}
    }
}

fn is_filter(block: &[u8]) -> bool {
    Filter::open(block, Expect::anything()).and_then(|filter| filter.verify()).is_ok()
}

fn view(input: &mut Input<'_>) -> View {
    let details = [Detail::Auto, Detail::Summary, Detail::Shape, Detail::Blocks, Detail::Bytes];
    let mut view = View::new().detail(details[input.below(5)]);
    match input.below(16) {
        0 => view = view.block(input.u8().into()),
        1 => view = view.entries(Entries::Keys),
        2 => view = view.entries(Entries::Values),
        3 => view = view.block(input.u8().into()).entries(Entries::Values),
        4 => view = view.secrets(true),
        5 => view = view.name(["LOCK", "CURRENT", "000001.sst", ""][input.below(4)]),
        _ => {}
    }
    view
}

fn ask_filter(bytes: &[u8]) -> u64 {
    let (fs, path) = (MemFs::new(), Path::new("table"));
    fs.overwrite(path, bytes.to_vec());
    let file = fs.open(path).expect("memory does not fail");
    let mut seed = 0;
    let report = inspect::describe_filter(&*file, &View::new().secrets(true), &mut |event: &Event<'_>| {
        if let Event::Span(span) = event
            && let ("seed", Value::Hex(found, _)) = (&*span.label, &span.value)
        {
            seed = *found;
        }
        Ok(())
    });
    assert!(report.expect("nothing that a file holds is an error").is_intact());
    if let Ok(found) = inspect::verify_filter(&*file, None) {
        assert!(found.denied <= found.keys && found.first_denied.len() as u64 <= found.denied);
    }
    if let Ok(found) = inspect::measure_filter(&*file, None, 100, 1) {
        let (least, most) = found.near.interval();
        assert!(found.random.asked == 100 && least <= found.near.rate() && found.near.rate() <= most);
    }
    seed
}

fn reseal(file: &mut [u8]) {
    let mended = &mut Mended::default();
    if file.starts_with(&crate::filter::header::MAGIC) {
        return seal::filter_block(file, mended);
    }
    match file.get(8) {
        Some(&kind) if kind == FileKind::Table as u8 => seal::table(file, mended),
        Some(&kind) if kind == FileKind::Log as u8 => seal::framed(file),
        Some(&kind) if kind == FileKind::Manifest as u8 => seal::manifest(file, mended),
        Some(&kind) if kind == FileKind::Current as u8 => seal::current(file),
        Some(&kind) if kind == FileKind::Filter as u8 => seal::filter_file(file, mended),
        Some(&kind) if kind == FileKind::BackupIndex as u8 => seal::backup_index(file),
        _ => {}
    }
}

fn describe(file: &[u8], view: &View) -> Report {
    let mut text = Text::new(Counting(0));
    let report =
        inspect::describe_bytes(file, view, &mut text).expect("nothing that a file holds is an error");
    assert!(text.into_inner().0 > 0, "something is said of every file");
    let _ = inspect::verdict(&report);
    report
}

fn filters(file: &[u8], view: &View) {
    let (fs, path) = (MemFs::new(), Path::new("file"));
    fs.overwrite(path, file.to_vec());
    let file = fs.open(path).expect("memory does not fail");
    let mut text = Text::new(Counting(0));
    inspect::describe_filter(&*file, view, &mut text).expect("nothing that a file holds is an error");
}

struct Counting(u64);

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Vector;

    #[test]
    fn resealing_changes_no_intact_file_and_mends_the_checksums_of_others() {
        let log = Vector { name: "log", facts: Vec::new(), bytes: crate::inspect::tests::log() };
        let mut names = Vec::new();
        for Vector { name, bytes, .. } in Vector::all().into_iter().chain([log]) {
            if !describe(&bytes, &View::new()).is_intact() {
                continue;
            }
            let mut file = bytes.clone();
            reseal(&mut file);
            assert!(file == bytes, "{name}");
            file[52] ^= 1;
            assert!(!describe(&file, &View::new()).is_intact(), "{name}");
            reseal(&mut file);
            assert!(describe(&file, &View::new()).is_intact(), "{name}");
            names.push(name);
        }
        for name in ["current", "log", "manifest", "table", "filter-bloom", "filter-file", "backup-index"] {
            assert!(names.contains(&name), "{name} is not intact");
        }
    }

    #[test]
    fn readers_agree_on_files_with_flipped_bits_and_recomputed_checksums() {
        let mut files: Vec<Vec<u8>> = Vector::all()
            .into_iter()
            .filter(|vector| ["table", "manifest"].contains(&vector.name))
            .map(|vector| vector.bytes)
            .collect();
        files.push(crate::inspect::tests::log());
        files.push(crate::inspect::tests::tables()[0].1.clone());
        for file in files {
            for bit in (0..8 * file.len()).step_by(3) {
                let mut input = [&[2, 6, 1][..], &file].concat();
                input[3 + bit / 8] ^= 1 << (bit % 8);
                run(&input);
            }
        }
    }

    /// The table of the document, and tables with more levels, chunks and filters. All of them hash keys with [`SEED`].
    fn tables() -> Vec<Vec<u8>> {
        let vectors = Vector::all().into_iter().filter(|vector| vector.name == "table");
        let forged = crate::inspect::tests::tables().map(|(_, bytes)| bytes);
        vectors.map(|vector| vector.bytes).chain(forged).collect()
    }

    const SEED: u64 = 5;

    #[test]
    fn printer_and_verify_agree_on_tables_whatever_bit_is_flipped() {
        let mut verdicts = [0, 0];
        for good in tables() {
            let step = (8 * good.len() / 4000).max(1) | 1;
            for bit in (0..8 * good.len()).step_by(step) {
                for resealed in [true, false] {
                    let mut bad = good.clone();
                    bad[bit / 8] ^= 1 << (bit % 8);
                    if resealed {
                        reseal(&mut bad);
                    }
                    let printed = describe(&bad, &View::new().detail(Detail::Shape));
                    let faults = table::faults(bad, SEED);
                    let agree = printed.is_intact() == faults.is_empty();
                    assert!(agree, "bit {bit}, resealed {resealed}: {faults:?}, but {printed:?}");
                    verdicts[usize::from(printed.is_intact())] += 1;
                }
            }
        }
        assert!(verdicts.iter().all(|&count| count > 10), "{verdicts:?}");
    }
}
