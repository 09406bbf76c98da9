//! Standard output. A reader that has enough may close it at any time; that ends a command quietly.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use crate::escape::escape;
use crate::failure::{Failure, Result};
use crate::json::Object;

/// Buffered standard output. Call [`Output::finish`] at the end: a failure there counts.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    line: Vec<u8>,
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::io("write to standard output", error),
    }
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, io::stdout().lock()), line: Vec::new() }
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failure)
    }

    /// Writes a line of text.
    pub(crate) fn text(&mut self, line: &str) -> Result<()> {
        self.raw(line.as_bytes())?;
        self.raw(b"\n")
    }

    /// Writes a line of escaped columns with tabs between them.
    pub(crate) fn columns(&mut self, columns: &[&[u8]]) -> Result<()> {
        self.line.clear();
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                self.line.push(b'\t');
            }
            self.line.extend_from_slice(escape(column).as_bytes());
        }
        self.line.push(b'\n');
        self.out.write_all(&self.line).map_err(failure)
    }

    /// Writes a line of JSON.
    pub(crate) fn object(&mut self, object: Object) -> Result<()> {
        self.text(&serde_json::Value::Object(object).to_string())
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(failure)
    }

    /// Ends the output.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()
    }
}
