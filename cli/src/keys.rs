use std::ffi::OsString;
use std::path::Path;

use crate::arguments::Arguments;
use crate::failure::Result;
use crate::json::Format;
use crate::line_format::{Content, LineFormat};
use crate::lines::Lines;
use crate::output::Output;
use crate::store::{Store, Within};

#[derive(Debug, clap::Args)]
pub(crate) struct OneKey {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    #[command(flatten)]
    pub(crate) within: Within,
    #[command(flatten)]
    pub(crate) arguments: Arguments,
}

impl OneKey {
    pub(crate) fn decode(&self) -> Result<Vec<u8>> {
        self.arguments.decode(&self.key)
    }
}

/// One key, or the keys on standard input.
#[derive(Debug, clap::Args)]
pub(crate) struct Keys {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The key; `-` reads keys from standard input.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    #[command(flatten)]
    pub(crate) within: Within,
    #[command(flatten)]
    pub(crate) lines: LineFormat,
    #[command(flatten)]
    pub(crate) format: Format,
}

impl Keys {
    pub(crate) fn single(&self) -> Result<Option<Vec<u8>>> {
        if self.key == "-" {
            return Ok(None);
        }
        self.lines.check_unused()?;
        self.lines.arguments.decode(&self.key).map(Some)
    }

    pub(crate) fn lines_of_input(&self) -> Result<Lines> {
        Lines::open(Path::new("-"), self.lines, Content::Key)
    }

    /// Calls `answer` with each key on standard input and its line. Flushes the output before a blocking read.
    pub(crate) fn answer_each(
        &self,
        mut answer: impl FnMut(&[u8], &[u8], &mut Output) -> Result<()>,
    ) -> Result<()> {
        let mut lines = self.lines_of_input()?;
        let mut out = Output::new();
        loop {
            if lines.may_block() {
                out.flush()?;
            }
            if lines.next()?.is_none() {
                lines.print_notes();
                return out.finish();
            }
            answer(&lines.key()?, lines.current(), &mut out)?;
        }
    }
}
