//! The page of one file; its text is in `templates/file.html`.

use std::path::Path;

use askama::Template;
use sievedb::filter::{FilterPlan, Kind as FilterKind};
use sievedb::fs::ReadFile;
use sievedb::inspect::{self, Detail, Event, Kind, Place, Sink, Stop, Value, View, escape};

use crate::chart::{self, Chart, Curve};
use crate::page::SCRIPT_SHA256;
use crate::svg::Svg;
use crate::units::{bytes, counted, key, share};

const PIECES_MAX: usize = 500;
const DAMAGE_MAX: usize = 100;

/// A page about one file: a table, a filter, another file of a store, or a sketch.
#[derive(Debug, Default)]
pub struct FilePage {
    name: String,
    kind: String,
    len: u64,
    facts: Vec<(String, String)>,
    filter: Vec<(String, String)>,
    pieces: Vec<Piece>,
    damage: Vec<String>,
    damage_count: u64,
    drawn: Option<Drawn>,
}

#[derive(Debug)]
struct Piece {
    what: String,
    count: u64,
    len: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Drawn {
    keys: u64,
    bits: f64,
    rate: f64,
}

#[derive(Template)]
#[template(path = "file.html")]
struct FileTemplate<'p> {
    script_sha256: &'static str,
    file: &'p FilePage,
    kind: String,
    size: String,
    verdict: String,
    map: String,
    uses: Vec<(&'static str, String, String)>,
    chart: Option<Chart>,
    more_damage: u64,
}

impl FilePage {
    /// Creates a page for a file of another crate: name, kind, length in bytes.
    #[must_use]
    pub fn new(name: &Path, kind: &str, len: u64) -> Self {
        Self { name: name.display().to_string(), kind: kind.into(), len, ..Self::default() }
    }

    /// Adds a fact about the whole file.
    #[must_use]
    pub fn fact(mut self, label: &str, value: &str) -> Self {
        self.facts.push((label.into(), value.into()));
        self
    }

    /// Reads and verifies a file of a store, or a filter block.
    ///
    /// # Errors
    ///
    /// [`Stop::Read`] if the file cannot be read. The page lists damage, which is not an error.
    pub fn describe(name: &Path, file: &dyn ReadFile, view: &View) -> Result<Self, Stop> {
        let mut page = Self { name: name.display().to_string(), ..Self::default() };
        let view = view.clone().detail(Detail::Blocks);
        let report = inspect::describe(file, &view, &mut |event: &Event<'_>| {
            page.take(event);
            Ok(())
        })?;
        (page.kind, page.len, page.damage_count) =
            (report.kind.name().into(), report.len, report.damage_count);
        if matches!(report.kind, Kind::Table | Kind::FilterFile | Kind::FilterBlock) {
            let mut filter = FilterFacts::default();
            inspect::describe_filter(file, &view, &mut filter)?;
            page.drawn = filter.drawn();
            page.filter = if report.kind == Kind::Table { filter.facts } else { Vec::new() };
        }
        Ok(page)
    }

    /// Whether all bytes that were read conform to the format.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.damage_count == 0
    }

    /// Returns the page: a self-contained HTML document.
    #[must_use]
    pub fn page(&self) -> String {
        let verdict = match self.damage_count {
            0 => "Everything in it is intact.".into(),
            count => format!("{} was found.", counted(count, "piece of damage", "pieces of damage")),
        };
        let (map, uses) = self.map();
        let page = FileTemplate {
            script_sha256: SCRIPT_SHA256,
            file: self,
            kind: capitalized(&self.kind),
            size: bytes(self.len),
            verdict,
            map,
            uses,
            chart: self.drawn.map(Drawn::chart),
            more_damage: self.damage_count.saturating_sub(self.damage.len() as u64),
        };
        page.render().unwrap_or_else(|error| format!("<!doctype html><p>The page cannot be made: {error}"))
    }

    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Fact { label, value, note, .. } => self.facts.push(fact(label, value, note)),
            Event::Span(span) if span.depth == 0 => {
                if let Place::File(_) = span.place {
                    self.add_piece(use_of(&span.label), 1, span.len);
                }
            }
            Event::Skipped { len, count, what, .. } => self.add_piece((*what).into(), *count, *len),
            Event::Damage(damage) if self.damage.len() < DAMAGE_MAX => {
                self.damage.push(format!("at offset {}: {}: {}", damage.offset, damage.what, damage.detail));
            }
            _ => {}
        }
    }

    fn add_piece(&mut self, what: String, count: u64, len: u64) {
        let is_full = self.pieces.len() >= PIECES_MAX;
        match self.pieces.last_mut().filter(|last| last.what == what || is_full) {
            Some(last) => (last.count, last.len) = (last.count + count, last.len.saturating_add(len)),
            None => self.pieces.push(Piece { what, count, len }),
        }
    }

    fn map(&self) -> (String, Vec<(&'static str, String, String)>) {
        let whole = self.pieces.iter().map(|piece| piece.len).fold(0, u64::saturating_add).max(1) as f64;
        let mut svg = Svg::new(
            "class=\"map\" viewBox=\"0 0 10000 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"the parts of the file\"",
        );
        let mut uses: Vec<(&str, u64, u64)> = Vec::new();
        let mut x = 0.0;
        for piece in &self.pieces {
            let width = 10_000.0 * piece.len as f64 / whole;
            svg.rectangle(x, 0.0, width.max(15.0), 10.0, &format!("class=\"{}\"", class_of(&piece.what)));
            x += width;
            match uses.iter_mut().find(|(what, _, _)| *what == piece.what) {
                Some(sum) => (sum.1, sum.2) = (sum.1 + piece.count, sum.2 + piece.len),
                None => uses.push((&piece.what, piece.count, piece.len)),
            }
        }
        let named = uses.into_iter().map(|(what, count, len)| {
            let name =
                if count == 1 { what.into() } else { format!("{what} ({})", crate::units::count(count)) };
            (class_of(what), name, bytes(len))
        });
        (svg.finish(), named.collect())
    }
}

fn capitalized(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map(char::to_uppercase).into_iter().flatten().chain(rest).collect()
}

fn use_of(label: &str) -> String {
    let without_number =
        |label: &str| label.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end().to_owned();
    match label.split_once(", ") {
        Some((block, kind)) if block.starts_with("block ") || block.starts_with("record ") => kind.to_owned(),
        _ => without_number(label),
    }
}

fn class_of(what: &str) -> &'static str {
    match what {
        "data" | "value chunk" => "m5",
        "filter" => "m4",
        "index" => "m3",
        "zeros" | "padding" => "m0",
        _ => "m1",
    }
}

fn fact(label: &str, value: &Value<'_>, note: &str) -> (String, String) {
    let value = shown(value);
    let text = match (value.is_empty(), note.is_empty()) {
        (false, false) => format!("{value}; {note}"),
        (true, _) => note.to_owned(),
        (_, true) => value,
    };
    (label.into(), text)
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Number(number) => crate::units::count(*number),
        Value::Hex(number, _) => format!("{number:x}"),
        Value::Id(id) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        Value::Text(text) => escape(text.as_bytes()),
        Value::Bytes(bytes) => key(bytes),
        Value::Share(rate) => share(*rate),
        _ => String::new(),
    }
}

#[derive(Default)]
struct FilterFacts {
    facts: Vec<(String, String)>,
    keys: Option<u64>,
    bits: Option<f64>,
    rate: Option<f64>,
}

impl Sink for FilterFacts {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        let Event::Fact { label, value, note, .. } = event else { return Ok(()) };
        self.facts.push(fact(label, value, note));
        match (*label, value) {
            ("keys", Value::Text(text)) => self.keys = text.replace(',', "").parse().ok(),
            ("keys", Value::Number(number)) => self.keys = Some(*number),
            ("bits per key", Value::Text(text)) => self.bits = text.parse().ok(),
            ("rate", Value::Share(rate)) => self.rate = Some(*rate),
            _ => {}
        }
        Ok(())
    }
}

impl FilterFacts {
    fn drawn(&self) -> Option<Drawn> {
        Some(Drawn { keys: self.keys?, bits: self.bits?, rate: self.rate? })
    }
}

impl Drawn {
    fn chart(self) -> Chart {
        let bits = chart::bits(self.bits);
        let curve = |class, name, kind| {
            let rate = |&bits_per_key: &f64| {
                if bits_per_key > 0.0 { FilterPlan { kind, bits_per_key }.expected_rate() } else { 1.0 }
            };
            Curve { class, name, values: bits.iter().map(rate).collect() }
        };
        let curves = [
            curve("block", "blocked Bloom", FilterKind::BlockedBloom),
            curve("bloom", "Bloom", FilterKind::Bloom),
            curve("best", "ribbon", FilterKind::Ribbon),
        ];
        chart::draw(
            "false positives",
            self.keys,
            &bits,
            &curves,
            self.bits,
            &[("goal", "this filter", self.rate)],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sievedb::fs::{Fs, StdFs};

    fn table_file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let db = sievedb::Options::new().background_threads(0).open(dir.path()).unwrap();
        for n in 0..5000u32 {
            db.put(format!("<b>key{n:05}"), "value").unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let table = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "sst")).unwrap();
        (dir, table)
    }

    fn page(path: &Path) -> FilePage {
        FilePage::describe(path, &*StdFs.open(path).unwrap(), &View::new()).unwrap()
    }

    #[test]
    fn the_page_of_a_table_has_its_parts_to_scale_and_its_filter_in_a_chart() {
        let (_dir, path) = table_file();
        let page = page(&path);
        assert!(page.is_intact());
        let len: u64 = page.pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, std::fs::metadata(&path).unwrap().len());
        let html = page.page();
        assert!(html.contains("Everything in it is intact.") && html.contains("this filter"), "{html}");
        assert!(html.contains("&#60;b&#62;key00000") && !html.contains("<b>key"), "{html}");
        let uses: Vec<String> = page.map().1.into_iter().map(|(_, name, _)| name).collect();
        assert!(uses.iter().any(|name| name.starts_with("data (")), "{uses:?}");
        assert!(uses.iter().any(|name| name == "filter"), "{uses:?}");
    }

    #[test]
    fn the_page_of_a_damaged_file_lists_the_damage() {
        let (_dir, path) = table_file();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let page = page(&path);
        assert!(!page.is_intact());
        let html = page.page();
        assert!(html.contains("of damage was found.") && html.contains("at offset 76: "), "{html}");
    }

    #[test]
    fn a_page_of_facts_escapes_them() {
        let html = FilePage::new(Path::new("a<b"), "sketch", 12).fact("cells", "</script>").page();
        assert!(html.contains("a&#60;b") && html.contains("&#60;/script&#62;"), "{html}");
    }
}
