//! Prints the first few of many lines, and the number of omitted lines.

use super::event::{Event, Place};
use super::out::Out;
use super::stop::Result;
use super::view::Detail;

const SHAPE_LINES: u64 = 16;

pub(in crate::inspect) struct Lines {
    max: u64,
    what: &'static str,
    shown: u64,
    /// The start of the first omitted line, the end of the last one, and their number.
    left_out: Option<(u64, u64, u64)>,
}

impl Lines {
    pub(in crate::inspect) fn new(detail: Detail, what: &'static str) -> Self {
        let max = match detail {
            Detail::Summary => 0,
            Detail::Auto | Detail::Shape => SHAPE_LINES,
            Detail::Blocks | Detail::Bytes => u64::MAX,
        };
        Self { max, what, shown: 0, left_out: None }
    }

    pub(in crate::inspect) fn next(&mut self, out: &Out<'_>, offset: u64, len: u64) -> Result<bool> {
        if self.shown < self.max && out.is_shown() {
            self.shown += 1;
            return Ok(true);
        }
        let (start, _, count) = self.left_out.unwrap_or((offset, 0, 0));
        self.left_out = Some((start, offset + len, count + 1));
        Ok(false)
    }

    pub(in crate::inspect) fn flush(&mut self, out: &mut Out<'_>) -> Result {
        match self.left_out.take() {
            Some((offset, end, count)) if out.is_shown() => {
                out.event(&Event::Skipped { offset, len: end - offset, count, what: self.what })
            }
            _ => Ok(()),
        }
    }

    pub(in crate::inspect) fn unit<'s>(
        &mut self,
        out: &mut Out<'s>,
        number: u64,
        (offset, len): (u64, u64),
        (label, note): (String, String),
        body: impl FnOnce(&mut Out<'s>) -> Result,
    ) -> Result {
        let picked = out.view.block == Some(number);
        let shown = if out.view.block.is_some() { picked } else { self.next(out, offset, len)? };
        let all = picked || out.detail == Detail::Bytes;
        out.showing(shown, |out| {
            out.group(Place::File(offset), len, label, note, |out| out.showing(all, body))
        })
    }
}
