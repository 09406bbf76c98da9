//! Reads a whole filter block.
//!
//! Reads page by page, in bounded memory. A filter within the limit is also opened as in a lookup, and its rate is
//! computed from its bits.

use std::ops::Range;

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::checksum32;
use crate::codec::{DecodeError, u64_bytes};
use crate::filter::header::{HEADER_BYTES, Section};
use crate::filter::{Expect, Filter, Header};
use crate::inspect::file::Window;
use crate::inspect::output::{Out, Place, Result, Value, counted, percent};

const PAGE_BYTES: u64 = 4096;

const CHECKSUMS_AHEAD: u64 = 1024;

const SHOWN_BYTES: u64 = 64;

#[derive(Debug, Clone, Copy)]
struct Surveyed {
    section: Section,
    pages: u64,
    computed: u32,
    checksums_at: u64,
    bad_pages: u64,
    first_bad: u64,
    ones: u64,
}

pub(super) struct Survey {
    pub(super) header: Header,
    sections: Vec<Surveyed>,
    stray: Option<u64>,
    /// The result of the store's reader; `None` if the filter is too large.
    opened: Option<Result<(), DecodeError>>,
}

impl Survey {
    pub(super) fn of(window: &mut Window<'_>, at: u64, header: Header, opened_max: u64) -> Result<Self> {
        let mut sections = Vec::new();
        let mut checksums_at = HEADER_BYTES as u64;
        for &section in &header.sections {
            let surveyed = survey_section(window, at, &header, section, checksums_at)?;
            checksums_at += 4 * surveyed.pages;
            sections.push(surveyed);
        }
        let mut stray = None;
        let mut from = checksums_at;
        let ends = header.sections.iter().map(|s| (s.offset, s.offset + s.len));
        for (to, next) in ends.chain([(header.block_len, header.block_len)]) {
            // At most a page: the gap ends at a page boundary.
            let gap = window.get(at + from, to.saturating_sub(from).min(PAGE_BYTES))?;
            let place = gap.iter().position(|&byte| byte != 0);
            stray = stray.or(place.map(|place| from + place as u64));
            from = next;
        }
        let opened = if header.block_len <= opened_max {
            let block = window.get(at, header.block_len)?;
            Some(Filter::open(block, Expect::anything()).and_then(|filter| filter.verify()))
        } else {
            None
        };
        Ok(Self { header, sections, stray, opened })
    }

    pub(super) fn is_whole(&self) -> bool {
        self.opened.is_some()
    }

    pub(super) fn describe(&self, out: &mut Out<'_>, window: &mut Window<'_>, at: u64, all: bool) -> Result {
        let mut from = HEADER_BYTES as u64;
        for (index, found) in self.sections.iter().enumerate() {
            let (start, label) = (found.checksums_at, format!("page checksums {index}"));
            from = start + 4 * found.pages;
            let note = format!("of section {index}");
            out.showing(all, |out| stretch(out, window, at, start..from, label, note))?;
        }
        let gap = |out: &mut Out<'_>, window: &mut Window<'_>, gap: Range<u64>| match gap.is_empty() {
            true => Ok(()),
            false => out.showing(all, |out| stretch(out, window, at, gap, "zeros".into(), String::new())),
        };
        for (index, found) in self.sections.iter().enumerate() {
            let Section { offset, len, checksum } = found.section;
            gap(out, window, from..offset)?;
            from = offset + len;
            let fill = percent(found.ones as f64 / (8 * len).max(1) as f64);
            let note = format!("{}, {fill} ones", counted(found.pages, "page", "pages"));
            let good = checksum == found.computed && found.bad_pages == 0;
            out.report.checksums += if good { 1 + found.pages } else { 0 };
            let (place, value) = (Place::File(at + offset), Value::Hex(checksum.into(), 4));
            let first = window.get(at + offset, len.min(SHOWN_BYTES))?.to_vec();
            let first = if all { &first[..] } else { &[] };
            out.span(place, len, first, format!("section {index}"), value, note, Some(good))?;
        }
        gap(out, window, from..self.header.block_len)
    }

    pub(super) fn judge(&self, out: &mut Out<'_>, at: u64) -> Result {
        let before = out.report.damage_count;
        for (index, found) in self.sections.iter().enumerate() {
            let stored = found.section.checksum;
            if stored != found.computed {
                let detail = format!("section {index}: stored {stored:08x}, computed {:08x}", found.computed);
                out.damage(at + found.checksums_at, "filter page checksums", detail)?;
            }
            if found.bad_pages > 0 {
                let detail = format!(
                    "section {index}: {} of {} do not match their checksums",
                    found.bad_pages,
                    counted(found.pages, "page", "pages")
                );
                out.damage(at + found.first_bad, "filter page", detail)?;
            }
        }
        if let Some(stray) = self.stray {
            out.damage(at + stray, "filter padding", "is not zero")?;
        }
        match &self.opened {
            Some(Err(error)) if out.report.damage_count == before => out.refused(at, error),
            _ => Ok(()),
        }
    }
}

fn stretch(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    at: u64,
    Range { start, end }: Range<u64>,
    label: String,
    note: String,
) -> Result {
    let first = window.get(at + start, (end - start).min(SHOWN_BYTES))?.to_vec();
    out.span(Place::File(at + start), end - start, &first, label, Value::None, note, None)
}

fn survey_section(
    window: &mut Window<'_>,
    at: u64,
    header: &Header,
    section: Section,
    checksums_at: u64,
) -> Result<Surveyed> {
    let pages = section.len.div_ceil(PAGE_BYTES);
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header.owner);
    sum.update(&u64_bytes(checksums_at));
    let mut found =
        Surveyed { section, pages, computed: 0, checksums_at, bad_pages: 0, first_bad: 0, ones: 0 };
    let mut page = 0;
    while page < pages {
        let ahead = CHECKSUMS_AHEAD.min(pages - page);
        let checksums = window.get(at + checksums_at + 4 * page, 4 * ahead)?.to_vec();
        sum.update(&checksums);
        for stored in checksums.as_chunks::<4>().0 {
            let offset = section.offset + page * PAGE_BYTES;
            let len = PAGE_BYTES.min(section.offset + section.len - offset);
            let bytes = window.get(at + offset, len)?;
            found.ones += bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            if checksum32(&header.owner, offset, &[bytes]) != LittleEndian::read_u32(stored) {
                found.bad_pages += 1;
                if found.bad_pages == 1 {
                    found.first_bad = offset;
                }
            }
            page += 1;
        }
    }
    found.computed = sum.finalize();
    Ok(found)
}
