use std::fmt::Display;
use std::path::Path;

use crate::Result;

#[derive(Debug, Default)]
pub(crate) struct Report {
    text: String,
    title_end: usize,
}

const BAR_CHARS: f64 = 40.0;

impl Report {
    pub(crate) fn new(title: &str, command: &str) -> Self {
        let mut report = Self::default();
        report.add(&format!("# {title}\n"));
        report.title_end = report.text.len();
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

    /// Inserts sentences and a picture below the title. The picture has a bar for each row of `table` with a number in
    /// `column`, named by the row's first `labels` cells.
    pub(crate) fn open_with(
        &mut self,
        sentences: &str,
        unit: &str,
        table: &Table,
        labels: usize,
        column: usize,
    ) {
        let opening = format!("\n{sentences}\n\n```text\n{unit}\n\n{}```\n", table.bars(labels, column));
        print!("{opening}");
        self.text.insert_str(self.title_end, &opening);
    }

    fn add(&mut self, text: &str) {
        print!("{text}");
        self.text.push_str(text);
    }

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

    fn bars(&self, labels: usize, column: usize) -> String {
        let bars = self.rows[1..].iter().filter_map(|row| {
            let shown = row[column].split(" (").next()?;
            let value: f64 = shown.replace(',', "").parse().ok()?;
            Some((row[..labels].join(", ").replace(['*', '`'], ""), value, shown))
        });
        let bars: Vec<_> = bars.collect();
        let longest = bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
        let width = bars.iter().map(|bar| bar.0.chars().count()).max().unwrap_or(0);
        let line = |(name, value, shown): &(String, f64, &str)| {
            let least = if *value > 0.0 { 1.0 } else { 0.0 };
            let chars = (value / longest * BAR_CHARS).round().max(least) as usize;
            format!("{name:width$}  {}{shown}\n", "█".repeat(chars) + if chars > 0 { " " } else { "" })
        };
        bars.iter().map(line).collect()
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

/// `256`, `10 k`, `100 M`.
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
    fn a_report_opens_with_bars_in_proportion_to_a_column() {
        let mut table = Table::new(["call", "threads", "ns"]);
        table.row(["`get`", "1", "1,000 (900–1,100)"]);
        table.row(["put", "4", "250"]);
        table.row(["none", "1", "–"]);
        table.row(["nothing", "1", "0"]);
        let mut report = Report::new("Title", "command");
        report.table(&table);
        report.open_with("Three sentences.", "ns", &table, 2, 2);
        let opening = format!(
            "# Title\n\nThree sentences.\n\n```text\nns\n\nget, 1      {} 1,000\nput, 4      {} 250\n\
             nothing, 1  0\n```\n\nOutput of",
            "█".repeat(40),
            "█".repeat(10)
        );
        assert!(report.text.starts_with(&opening), "{}", report.text);
    }

    #[test]
    fn a_table_is_markdown_and_numbers_can_be_read() {
        let mut table = Table::new(["what", "ns"]);
        table.row(["one line", "1.5"]);
        assert_eq!(table.markdown(), "| what | ns |\n|---|---:|\n| one line | 1.5 |\n");
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([256, 10_000, 1_500_000, 100_000_000].map(keys), ["256", "10 k", "1500 k", "100 M"]);
    }
}
