//! The filters of a table: each read whole, its rate computed anew, and asked for every key.

use std::collections::HashSet;
use std::path::PathBuf;

use bytes::Bytes;

use crate::error::{Error, InFile};
use crate::filename::FileName;
use crate::filter::{AlignedBytes, Filter};
use crate::hash::key_hash;

use super::super::filter_source::{is_aligned, read_filter};
use super::Verifier;

/// A filter of the table, and what it denied.
pub(super) struct Asked {
    filter: Filter<AlignedBytes>,
    path: PathBuf,
    offset: u64,
    denied: u64,
    /// The first key that it denied and the data block that holds it.
    first: Option<(Bytes, u64)>,
}

impl Verifier<'_> {
    /// Reads the filters; gives what is wrong with them, by themselves.
    pub(super) fn open_filters(&mut self) -> Vec<Error> {
        let mut wrong = self.misplaced_filters();
        let named: Option<HashSet<_>> = self.table.map(|table| table.properties.filters.iter().collect());
        let mut places = HashSet::new();
        for reference in self.meta.filters.iter().filter(|filter| filter.domain == 0) {
            let path = match reference.file {
                Some(number) => FileName::Filter(number).path(&self.file.ctx.dir),
                None => self.file.path.clone(),
            };
            let offset = reference.offset;
            if !places.insert((reference.file, offset)) {
                wrong.push(Error::corruption(&path, offset, "filter handle", "the manifest names it twice"));
                continue;
            }
            if reference.file.is_none() && named.as_ref().is_some_and(|named| !named.contains(reference)) {
                let detail = "the manifest names it, the properties name none like it";
                wrong.push(self.file.corrupt(offset, "filter handle", detail));
                continue;
            }
            match read_filter(self.file, self.meta, reference) {
                Ok(filter) => {
                    // A wrong rate makes no answer wrong.
                    wrong.extend(filter.verify().err().map(|error| error.in_file(&path, offset)));
                    self.filters.push(Asked { filter, path, offset, denied: 0, first: None });
                }
                Err(error) => wrong.push(error),
            }
        }
        wrong
    }

    /// Filters of the properties that do not stand where one must, apart from those that will be read.
    fn misplaced_filters(&self) -> Vec<Error> {
        let Some(table) = self.table else { return Vec::new() };
        let read = self.meta.filters.iter().filter(|filter| filter.file.is_none() && filter.domain == 0);
        let read: HashSet<u64> = read.map(|filter| filter.offset).collect();
        let misplaced = table.properties.filters.iter().map(|filter| filter.offset);
        let misplaced = misplaced.filter(|offset| !is_aligned(*offset) && !read.contains(offset));
        let detail = |offset| format!("a filter at {offset}, which is no multiple of 4096");
        let at = table.footer.properties.offset;
        misplaced.map(|offset| self.file.corrupt(at, "properties", detail(offset))).collect()
    }

    pub(super) fn ask_filters(&mut self, user: &[u8], block: u64) {
        let hash = key_hash(self.file.ctx.hash_seed, user);
        for asked in self.filters.iter_mut().filter(|asked| !asked.filter.may_contain(hash)) {
            asked.denied += 1;
            asked.first.get_or_insert_with(|| (Bytes::copy_from_slice(user), block));
        }
    }

    /// A filter that denies a key of its table breaks the one promise that filters make.
    pub(super) fn report_denied(&mut self) {
        self.report.filters = self.filters.len() as u64;
        for asked in std::mem::take(&mut self.filters) {
            let Some((key, block)) = asked.first else { continue };
            let detail =
                format!("denies {} of the table's keys, first one in the block at {block}", asked.denied);
            let error = Error::corruption(&asked.path, asked.offset, "filter", detail);
            let last = if asked.denied == 1 { key.clone() } else { self.keys.1.clone() };
            self.report_for(error, (key, last));
        }
    }
}
