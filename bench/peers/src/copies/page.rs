use std::fs;
use std::path::Path;

use super::Step;
use super::stores::Name;
use crate::statistics::{digits, thousands};
use crate::{Result, machine};

pub(crate) fn write(keys: u32, results: &[(Name, Vec<Step>)], out: &Path) -> Result<()> {
    let mut text = format!(
        "# Checkpoints and backups next to RocksDB: measured\n\n\
         Output of one run of `copies` of `bench/peers` ([README](../../bench/peers/README.md)), not edited by hand. A store of \
         {} file paths with values of 100 bytes is copied while it is open; every restored store equals its origin. {}\n\n\
         Both stores have 256 MiB of memory and no compression. A backup includes the log, so no flush is needed \
         before it. Both stores compare the checksums of files during a restore; SieveDB then also verifies the restored \
         store. *Calls* counts the calls of `read` and `write` and their variants.\n\n\
         | step | store | seconds | read | written | calls |\n|---|---|---:|---:|---:|---:|\n",
        thousands(keys.into()),
        machine::describe(),
    );
    for (name, step) in in_turn(results).filter(|(_, step)| step.latency.is_none()) {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            step.name,
            name.title(),
            digits(step.seconds),
            mib(step.io.read_bytes),
            mib(step.io.written_bytes),
            thousands((step.io.read_calls + step.io.write_calls) as i64),
        ));
    }
    text.push_str(
        "\nThe same steps while another thread writes batches of ten entries as fast as it can; latencies are those of a batch:\n\n\
         | meanwhile | store | seconds | median, µs | 99.9 %, µs | longest, ms |\n|---|---|---:|---:|---:|---:|\n",
    );
    for (name, step) in in_turn(results) {
        if let Some([median, most, longest]) = step.latency {
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                step.name,
                name.title(),
                digits(step.seconds),
                digits(median),
                digits(most),
                digits(longest / 1e3),
            ));
        }
    }
    print!("{text}");
    Ok(fs::write(out.join("copies.md"), text)?)
}

fn in_turn(results: &[(Name, Vec<Step>)]) -> impl Iterator<Item = (Name, &Step)> {
    let steps = results.iter().map(|(_, steps)| steps.len()).max().unwrap_or(0);
    (0..steps)
        .flat_map(|step| results.iter().filter_map(move |(name, steps)| Some((*name, steps.get(step)?))))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", digits(bytes as f64 / f64::from(1 << 20)))
}
