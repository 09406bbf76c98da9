//! Counts that are independent of the machine: instructions by valgrind, system calls by strace, of all threads. The difference
//! of children with N and 2 N steps excludes opening, warming up and closing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) instructions: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) calls: Option<BTreeMap<String, f64>>,
}

pub(crate) fn each(once: u64, twice: u64, operations: u64) -> f64 {
    (twice as f64 - once as f64) / operations as f64
}

pub(crate) fn each_by_name(
    once: &BTreeMap<String, u64>,
    twice: &BTreeMap<String, u64>,
    operations: u64,
) -> BTreeMap<String, f64> {
    let names = once.keys().chain(twice.keys());
    let of = |counts: &BTreeMap<String, u64>, name| counts.get(name).copied().unwrap_or(0);
    names.map(|name| (name.clone(), each(of(once, name), of(twice, name), operations))).collect()
}

pub(crate) fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

pub(crate) fn instructions(child: &Command) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output = with(valgrind, child).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind failed: {text}").into());
    }
    parse_instructions(&text)
        .ok_or_else(|| format!("valgrind printed no count of instructions: {text}").into())
}

fn parse_instructions(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("I refs:") || line.contains("I   refs:"))?;
    line.rsplit(':').next()?.trim().replace(',', "").parse().ok()
}

pub(crate) fn calls(child: &Command, scratch: &Path) -> Result<BTreeMap<String, u64>> {
    let table = scratch.join("strace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&table);
    let output = with(strace, child).output()?;
    if !output.status.success() {
        return Err(format!("strace failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(parse_calls(&std::fs::read_to_string(&table)?))
}

/// Columns: share, seconds, microseconds per call, calls, errors (or empty), name.
fn parse_calls(table: &str) -> BTreeMap<String, u64> {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|words| words.len() >= 5 && words.last() != Some(&"total"))
        .filter_map(|words| Some(((*words.last()?).to_owned(), words[3].parse().ok()?)))
        .collect()
}

fn with(mut tool: Command, child: &Command) -> Command {
    tool.arg(child.get_program()).args(child.get_args()).stdin(Stdio::null());
    tool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_valgrind_and_strace_are_read() {
        let valgrind = "==1== Command: x\n==1== \n==1== I   refs:      1,234,567\n";
        assert_eq!(parse_instructions(valgrind), Some(1_234_567));
        assert_eq!(parse_instructions("==1== nothing"), None);
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n\
                      ------ ----------- ----------- --------- --------- ----------------\n \
                      60.00    0.000300           3       100         7 futex\n \
                      40.00    0.000200           2        50           pread64\n\
                      ------ ----------- ----------- --------- --------- ----------------\n\
                      100.00    0.000500           3       150         7 total\n";
        let calls = parse_calls(strace);
        assert_eq!(calls.into_iter().collect::<Vec<_>>(), [("futex".into(), 100), ("pread64".into(), 50)]);
    }

    #[test]
    fn what_both_runs_have_is_no_part_of_an_operation() {
        assert_eq!(each(1_000_000, 1_002_500, 10), 250.0);
        let once = BTreeMap::from([("mmap".to_owned(), 30), ("pread64".to_owned(), 10)]);
        let twice =
            BTreeMap::from([("mmap".to_owned(), 30), ("pread64".to_owned(), 20), ("futex".to_owned(), 5)]);
        let each = each_by_name(&once, &twice, 10);
        assert_eq!((each["mmap"], each["pread64"], each["futex"]), (0.0, 1.0, 0.5));
    }
}
