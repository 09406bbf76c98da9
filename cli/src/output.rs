//! Standard output. A closed pipe ends a command without a message.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use crate::escape::{PIECE_BYTES, write_escaped};
use crate::failure::{Failure, Result};
use crate::json::{Object, write_entry};

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

fn write_columns(columns: &[&[u8]], to: &mut impl Write) -> io::Result<()> {
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            to.write_all(b"\t")?;
        }
        write_escaped(column, to)?;
    }
    to.write_all(b"\n")
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, io::stdout().lock()), line: Vec::new() }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failure)
    }

    pub(crate) fn text(&mut self, line: &str) -> Result<()> {
        self.raw(line.as_bytes())?;
        self.raw(b"\n")
    }

    pub(crate) fn columns(&mut self, columns: &[&[u8]]) -> Result<()> {
        if columns.iter().map(|column| column.len()).sum::<usize>() > PIECE_BYTES {
            return write_columns(columns, &mut self.out).map_err(failure);
        }
        self.line.clear();
        write_columns(columns, &mut self.line).and_then(|()| self.out.write_all(&self.line)).map_err(failure)
    }

    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        write_entry(key, value, &mut self.out).map_err(failure)
    }

    pub(crate) fn object(&mut self, object: Object) -> Result<()> {
        self.text(&serde_json::Value::Object(object).to_string())
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(failure)
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()
    }
}
