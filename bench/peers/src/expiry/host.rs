//! A store in a process that can be killed. Each call is a line; each answer is a line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Plan;
use super::stores::Name;
use super::stream::Stream;
use crate::Result;
use crate::machine::{Io, resident_bytes};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// A digit for each id: 1 if it is new.
    pub(crate) new: String,
    /// The duration of the store's call.
    pub(crate) seconds: f64,
    /// Resident memory, less that before the store was opened.
    pub(crate) memory_bytes: u64,
    /// Written to files by this process.
    pub(crate) written_bytes: u64,
    /// Compaction debt.
    pub(crate) debt_bytes: u64,
}

impl Reply {
    pub(crate) fn answers(&self) -> Vec<bool> {
        self.new.bytes().map(|digit| digit == b'1').collect()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Opened {
    seconds: f64,
}

pub(crate) fn serve(
    name: Name,
    dir: &Path,
    plan: &Plan,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<()> {
    let stream = Stream::new(plan);
    let memory_before = resident_bytes();
    let start = Instant::now();
    let mut store = name.open(dir, plan)?;
    send(&mut output, &Opened { seconds: start.elapsed().as_secs_f64() })?;
    let mut ids = Vec::new();
    for line in input.lines() {
        let (first, end): (u32, u32) = serde_json::from_str(&line?)?;
        ids.clear();
        ids.extend((first..end).map(|event| stream.id(event)));
        let start = Instant::now();
        let new = store.insert(stream.time(first), &ids)?;
        let seconds = start.elapsed().as_secs_f64();
        let reply = Reply {
            new: new.iter().map(|is_new| if *is_new { '1' } else { '0' }).collect(),
            seconds,
            memory_bytes: resident_bytes().saturating_sub(memory_before),
            written_bytes: Io::now().written_bytes,
            debt_bytes: store.debt()?,
        };
        send(&mut output, &reply)?;
    }
    Ok(())
}

fn send(output: &mut impl Write, value: &impl Serialize) -> Result<()> {
    writeln!(output, "{}", serde_json::to_string(value)?)?;
    Ok(output.flush()?)
}

pub(crate) struct Host {
    child: Child,
    calls: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) opened: f64,
}

impl Host {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let (calls, answers) = (child.stdin.take(), child.stdout.take().ok_or("the process has no output")?);
        let mut host = Self { child, calls, answers: BufReader::new(answers), opened: 0.0 };
        host.opened = host.answer::<Opened>()?.ok_or("the store was not opened")?.seconds;
        Ok(host)
    }

    pub(crate) fn insert(&mut self, first: u32, end: u32) -> Result<Reply> {
        self.call(first, end)?;
        Ok(self.answer()?.ok_or("the store ended")?)
    }

    pub(crate) fn insert_and_kill(&mut self, first: u32, end: u32, after: Duration) -> Result<Option<Reply>> {
        self.call(first, end)?;
        std::thread::sleep(after);
        self.calls = None;
        self.child.kill()?;
        self.answer()
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        let was_alive = self.calls.take().is_some();
        match self.child.wait()? {
            status if was_alive && !status.success() => Err(format!("the store ended with {status}").into()),
            _ => Ok(()),
        }
    }

    fn call(&mut self, first: u32, end: u32) -> Result<()> {
        let calls = self.calls.as_mut().ok_or("the store is closed")?;
        writeln!(calls, "[{first},{end}]")?;
        Ok(calls.flush()?)
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(if line.ends_with('\n') { Some(serde_json::from_str(&line)?) } else { None })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
