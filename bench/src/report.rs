//! The Markdown report of a benchmark: printed while it grows, and optionally written to a file at the end.

use std::fmt::Display;
use std::path::Path;

use crate::Result;

#[derive(Debug, Default)]
pub(crate) struct Report {
    text: String,
}

impl Report {
    /// Starts a report; `command` reproduces it.
    pub(crate) fn new(title: &str, command: &str) -> Self {
        let mut report = Self::default();
        report.add(&format!("# {title}\n"));
        report.text(&format!("Output of one run of `{command}`, not edited by hand."));
        report
    }

    pub(crate) fn heading(&mut self, title: &str) {
        self.add(&format!("\n## {title}\n"));
    }

    pub(crate) fn text(&mut self, paragraph: &str) {
        self.add(&format!("\n{paragraph}\n"));
    }

    pub(crate) fn table(&mut self, table: &Table) {
        self.add(&format!("\n{}", table.markdown()));
    }

    fn add(&mut self, text: &str) {
        print!("{text}");
        self.text.push_str(text);
    }

    /// Writes the report to a file, if there is one.
    pub(crate) fn write(&self, file: Option<&Path>) -> Result<()> {
        if let Some(file) = file {
            if let Some(directory) = file.parent() {
                std::fs::create_dir_all(directory)?;
            }
            std::fs::write(file, &self.text)?;
        }
        Ok(())
    }
}

/// All columns but the first are right-aligned numbers.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<T: Display>(head: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![cells(head)] }
    }

    pub(crate) fn row<T: Display>(&mut self, row: impl IntoIterator<Item = T>) {
        self.rows.push(cells(row));
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                out.push_str(&format!("|---{}|\n", "|---:".repeat(row.len() - 1)));
            }
        }
        out
    }
}

fn cells<T: Display>(row: impl IntoIterator<Item = T>) -> Vec<String> {
    row.into_iter().map(|cell| cell.to_string()).collect()
}

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of keys: `256`, `10 k`, `100 M`.
pub(crate) fn keys(number: u64) -> String {
    match number {
        1_000_000.. if number.is_multiple_of(1_000_000) => format!("{} M", number / 1_000_000),
        1_000.. if number.is_multiple_of(1_000) => format!("{} k", number / 1_000),
        _ => count(number),
    }
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_and_numbers_can_be_read() {
        let mut table = Table::new(["what", "ns"]);
        table.row(["one line", "1.5"]);
        assert_eq!(table.markdown(), "| what | ns |\n|---|---:|\n| one line | 1.5 |\n");
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([256, 10_000, 1_500_000, 100_000_000].map(keys), ["256", "10 k", "1500 k", "100 M"]);
    }
}
