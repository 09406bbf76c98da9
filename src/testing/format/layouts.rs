//! The layout tables of the document: `offset | size | field`, without gaps, up to the stated total.

use crate::testing::DOCUMENT;

const OPENING: &str = "| offset | size | field |";

/// The nearest heading above each table, and its total in the code.
const TOTALS: [(&str, &str); 11] = [
    ("File header", "64"),
    ("CURRENT", "96"),
    ("Layout", "16 + n + p"),
    ("Promise and close", "16"),
    ("Promise and close", "24"),
    ("Block", "20 + n"),
    ("Footer", "128"),
    ("Header", "256"),
    ("Header", "24"),
    ("Filter file", "4096 + n"),
    ("Backup repository", "92 + f"),
];

#[derive(Default)]
struct Sum {
    number: u64,
    names: Vec<&'static str>,
}

impl Sum {
    fn add(&mut self, size: &'static str) {
        match size.parse::<u64>() {
            Ok(number) => self.number += number,
            Err(_) => self.names.push(size),
        }
    }

    fn text(&self) -> String {
        let parts =
            std::iter::once(self.number.to_string()).chain(self.names.iter().map(|name| (*name).to_owned()));
        parts.collect::<Vec<_>>().join(" + ")
    }
}

fn total(heading: &str, rows: impl Iterator<Item = &'static str>) -> String {
    let mut sum = Sum::default();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        if let Some(total) = cells[1].strip_prefix("**") {
            assert_eq!(total.trim_end_matches('*'), sum.text(), "the total of {heading}");
            return sum.text();
        }
        assert_eq!(cells[0], sum.text(), "the offset of {:?} in {heading}", cells[2]);
        sum.add(cells[1]);
    }
    panic!("the layout table of {heading} states no total");
}

#[test]
fn every_layout_table_is_without_gaps_and_adds_up_to_the_size_in_the_code() {
    let mut found = Vec::new();
    let mut heading = "";
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
        }
        if line.starts_with(OPENING) {
            let rows = lines.clone().skip(1).take_while(|row| row.starts_with('|'));
            found.push((heading.to_owned(), total(heading, rows)));
        }
    }
    let expected: Vec<_> =
        TOTALS.iter().map(|(heading, total)| ((*heading).to_owned(), (*total).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_totals_are_those_of_the_code() {
    use crate::{block, file_header, filter, manifest, table, wal};
    let mark = wal::EditMark::default();
    let sizes = [
        file_header::HEADER_BYTES,
        manifest::current::BYTES,
        wal::record::FRAGMENT_HEADER_BYTES,
        wal::encode_promise(mark).len(),
        wal::encode_close(0, mark).len(),
        block::ENVELOPE_BYTES,
        table::FOOTER_BYTES,
        filter::header::HEADER_BYTES,
        filter::header::SECTION_BYTES,
        table::FILTER_OFFSET as usize,
        file_header::HEADER_BYTES + 28,
    ];
    for ((heading, total), size) in TOTALS.iter().zip(sizes) {
        assert_eq!(total.split(" + ").next(), Some(&*size.to_string()), "{heading}");
    }
}
