//! A description as text: offset, bytes, meaning.
//!
//! ```text
//! table, 365 bytes
//!
//!   entries       4  (3 keys, 1 tombstone)
//!
//! offset  bytes                    what
//!      0  64 bytes                 file header
//!      0  89 53 49 45 56 45 0d 0a    magic
//!      8  01 00                      file kind         1, table
//! ```
//!
//! Parts are indented below their group. A plus marks an offset in the contents of a block or record, `ok` a matching
//! checksum, and `!` damage.

use std::io::{self, Write};

use super::damage::FileDamage;
use super::escape::escape;
use super::event::{Event, Place, Report, Sink, Span, Value};
use super::words::{bytes, count, counted, percent};

const ROW_BYTES: usize = 8;

const ROWS_MAX: usize = 4;

const TEXT_BYTES_MAX: usize = 60;

/// Prints events.
#[derive(Debug)]
pub struct Text<W> {
    to: W,
    width: usize,
    headed: bool,
    bare: bool,
    checks: bool,
}

impl<W: Write> Text<W> {
    /// Prints to `to`, which should be buffered.
    #[must_use]
    pub fn new(to: W) -> Self {
        Self { to, width: 6, headed: false, bare: false, checks: false }
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn set_off(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.bare) {
            true => writeln!(self.to),
            false => Ok(()),
        }
    }

    fn head(&mut self) -> io::Result<()> {
        if self.headed {
            return Ok(());
        }
        (self.headed, self.bare) = (true, false);
        writeln!(self.to, "\n{:>width$}  {:<23}  what", "offset", "bytes", width = self.width)
    }

    fn offset(&self, place: Place, more: u64) -> String {
        match place {
            Place::File(offset) => (offset + more).to_string(),
            Place::Payload { at, .. } => format!("+{}", at + more),
        }
    }

    fn span(&mut self, span: &Span<'_>) -> io::Result<()> {
        self.head()?;
        let first = match (span.bytes.is_empty(), &span.value) {
            (true, Value::Secret) => {
                "-- ".repeat(span.len.min(ROW_BYTES as u64) as usize).trim_end().to_owned()
            }
            (true, _) => counted(span.len, "byte", "bytes"),
            (false, _) => hex(&span.bytes[..span.bytes.len().min(ROW_BYTES)]),
        };
        let indent = 2 * usize::from(span.depth);
        let label = format!("{:indent$}{}", "", span.label);
        let meaning = meaning(span);
        let offset = self.offset(span.place, 0);
        let line = format!("{offset:>width$}  {first:<23}  {label:<22}  {meaning}", width = self.width);
        writeln!(self.to, "{}", line.trim_end())?;
        let rows = span.bytes.chunks(ROW_BYTES).enumerate().skip(1);
        for (row, bytes) in rows.take(ROWS_MAX - 1) {
            let offset = self.offset(span.place, (row * ROW_BYTES) as u64);
            writeln!(self.to, "{offset:>width$}  {}", hex(bytes), width = self.width)?;
        }
        let shown = span.bytes.len().min(ROWS_MAX * ROW_BYTES) as u64;
        if shown > 0 && shown < span.len && span.value != Value::Secret {
            writeln!(self.to, "{:>width$}  and {} more", "", count(span.len - shown), width = self.width)?;
        }
        Ok(())
    }
}

/// Returns the result of a description as one line.
#[must_use]
pub fn verdict(report: &Report) -> String {
    if let Some(first) = &report.first_damage {
        let places = counted(report.damage_count, "place", "places");
        let FileDamage { offset, what, detail, .. } = first;
        return format!(
            "not intact: {places}; the first is at {offset}: {what}: {detail}{}",
            first.concerns()
        );
    }
    let mut held = counted(report.checksums, "checksum", "checksums");
    if report.sums > 0 {
        held += &format!(" and {}", counted(report.sums, "sum", "sums"));
    }
    let all = counted(report.accounted, "byte", "bytes");
    match (report.partial, report.torn_bytes) {
        (true, _) => format!("intact as far as it was read: {held} hold"),
        (false, 0) => format!("intact: all {all} accounted for, {held} hold"),
        (false, torn) => {
            let torn = counted(torn, "byte", "bytes");
            format!("intact up to a torn end of {torn}: {all} accounted for, {held} hold")
        }
    }
}

impl<W: Write> Sink for Text<W> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Begin { kind, len } => {
                self.width = len.to_string().len().max(6);
                self.bare = true;
                writeln!(self.to, "{}, {}", kind.name(), counted(*len, "byte", "bytes"))
            }
            Event::Fact { label, value, note } => {
                self.set_off()?;
                let value = if let Value::Number(number) = value { count(*number) } else { text(value) };
                let note = if note.is_empty() { String::new() } else { format!("  ({note})") };
                writeln!(self.to, "  {label:<13} {value}{note}")
            }
            Event::Span(span) => self.span(span),
            Event::Skipped { offset, len, count: number, what } => {
                self.head()?;
                let what = format!("({} more {what}, not shown)", count(*number));
                writeln!(self.to, "{offset:>width$}  {:<23}  {what}", bytes(*len), width = self.width)
            }
            Event::Entry(entry) => {
                self.set_off()?;
                let keyspace = entry.keyspace.map_or(String::new(), |id| format!("{id}\t"));
                let kind = match (entry.delete, entry.end) {
                    (_, Some(_)) => "delete range",
                    (true, None) => "delete",
                    (false, None) => "put",
                };
                write!(self.to, "{keyspace}{}\t{kind}\t{}", entry.seqno, escape(entry.key))?;
                match entry.end.or(entry.value) {
                    Some(value) => writeln!(self.to, "\t{}", escape(value)),
                    None => writeln!(self.to),
                }
            }
            Event::Check { what, against, found, .. } => {
                if !self.checks {
                    self.checks = true;
                    writeln!(self.to, "\ncounts, and the parts that state the same")?;
                }
                writeln!(self.to, "  {what:<33} {:>15}  {against}", count(*found))
            }
            Event::Damage(damage) => {
                let FileDamage { offset, what, detail, newer, .. } = damage;
                self.set_off()?;
                let verdict = if *newer { "newer" } else { "damaged" };
                writeln!(self.to, "! {verdict} at {offset}: {what}: {detail}{}", damage.concerns())
            }
            Event::End(report) => writeln!(self.to, "\n{}", verdict(report)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

fn meaning(span: &Span<'_>) -> String {
    let words = words(&span.value, &span.note);
    match span.intact {
        None => words,
        Some(true) if words.is_empty() => "ok".into(),
        Some(true) => format!("{words}  ok"),
        Some(false) => format!("{words}  WRONG"),
    }
}

fn words(value: &Value<'_>, note: &str) -> String {
    let value = text(value);
    match (value.is_empty(), note.is_empty()) {
        (_, true) => value,
        (true, false) => note.to_owned(),
        (false, false) => format!("{value}, {note}"),
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::None => String::new(),
        Value::Number(number) => number.to_string(),
        Value::Hex(number, bytes) => format!("{number:0digits$x}", digits = 2 * usize::from(*bytes)),
        Value::Id(id) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        Value::Text(text) => text.clone().into_owned(),
        Value::Bytes(bytes) => match bytes.get(..TEXT_BYTES_MAX) {
            Some(first) if bytes.len() > TEXT_BYTES_MAX => format!("\"{}\"...", escape(first)),
            _ => format!("\"{}\"", escape(bytes)),
        },
        Value::Share(share) => percent(*share),
        Value::Secret => "secret".into(),
    }
}
