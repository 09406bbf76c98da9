mod bar;
mod host;
mod model;
mod page;
mod stores;
mod stream;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::keys::KeySet;
use bar::Bar;
use stores::Name;
use stream::{BUCKETS, Stream};

/// Measures windows of ids in stores that drop expired ids.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of ids.
    #[arg(long, default_value_t = 30_000_000)]
    ids: u32,
    /// Shape of the ids. Others than `hashed` have a page of their own.
    #[arg(long, value_enum, default_value_t = KeySet::Hashed)]
    keys: KeySet,
    /// Times to live that they cover.
    #[arg(long, default_value_t = 3)]
    windows: u32,
    /// Memory for a store, in KiB [default: 512 MiB for 120 M ids in a window, in proportion; at least 16 MiB].
    #[arg(long, value_name = "KIB")]
    memory: Option<u64>,
    /// Seconds after which RocksDB compacts a table again because of its age.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    rocksdb_ttl: u64,
    /// How often the process of a store is killed during a call; it is closed in order once more.
    #[arg(long, default_value_t = 6)]
    kills: u32,
    /// Only these stores.
    #[arg(long, value_delimiter = ',')]
    stores: Vec<Name>,
    /// Directory for the stores [default: a temporary directory].
    #[arg(long, value_name = "DIRECTORY")]
    work: Option<PathBuf>,
    /// Directory of the report.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::REPORTS)]
    out: PathBuf,
    /// Serves this store in this directory to the process that has started this one.
    #[arg(long, hide = true, requires = "work")]
    child: Option<Name>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) ids: u32,
    pub(crate) keys: KeySet,
    pub(crate) per_window: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) kills: u32,
    pub(crate) rocksdb_ttl: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) ids: u32,
    pub(crate) seconds: f64,
    pub(crate) disk_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) debt_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) samples: Vec<Sample>,
    pub(crate) reopened: f64,
}

impl Args {
    fn plan(&self) -> Plan {
        let per_window = (self.ids / self.windows.max(1)).max(BUCKETS);
        let in_proportion = (512 << 20) * u64::from(per_window) / 120_000_000;
        let memory_bytes = self.memory.map_or(in_proportion.max(16 << 20), |kib| kib << 10);
        Plan {
            ids: self.ids,
            keys: self.keys,
            per_window,
            memory_bytes,
            kills: self.kills,
            rocksdb_ttl: self.rocksdb_ttl,
        }
    }

    fn command(&self, name: Name, dir: &Path) -> Result<Command> {
        let Plan { ids, keys, memory_bytes, rocksdb_ttl, .. } = self.plan();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["expiry", "--child", name.argument()]).arg("--work").arg(dir);
        command.args(["--ids", &ids.to_string(), "--windows", &self.windows.to_string()]);
        command.args(["--keys", &keys.name()]);
        command.args([
            "--memory",
            &(memory_bytes >> 10).to_string(),
            "--rocksdb-ttl",
            &rocksdb_ttl.to_string(),
        ]);
        Ok(command)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let plan = args.plan();
    if let (Some(name), Some(dir)) = (args.child, &args.work) {
        return host::serve(name, dir, &plan, io::stdin().lock(), io::stdout().lock());
    }
    let temporary = tempfile::tempdir()?;
    let work = args.work.as_deref().unwrap_or(temporary.path());
    let mut results = Vec::new();
    for name in Name::all().filter(|name| args.stores.is_empty() || args.stores.contains(name)) {
        let dir = work.join(name.argument());
        eprintln!("{}", name.title());
        fs::create_dir_all(&dir)?;
        results.push((name, Bar::run(&plan, &Stream::new(&plan), &dir, || args.command(name, &dir))?));
        fs::remove_dir_all(&dir)?;
    }
    page::write(&plan, &results, &args.out)
}

fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path())?,
            metadata => metadata.map_or(0, |metadata| metadata.len()),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const PLAN: Plan = Plan {
        ids: 60_000,
        keys: KeySet::Hashed,
        per_window: 20_000,
        memory_bytes: 16 << 20,
        kills: 6,
        rocksdb_ttl: 1,
    };

    #[test]
    fn a_store_is_served_and_gives_right_answers() {
        for (name, keys) in Name::all().zip([KeySet::Urls, KeySet::Uuids, KeySet::Tenants, KeySet::Hashed]) {
            let plan = Plan { keys, ..PLAN };
            let stream = Stream::new(&plan);
            let dir = tempfile::tempdir().unwrap();
            let calls: String =
                (0..PLAN.ids).step_by(1000).map(|first| format!("[{first},{}]\n", first + 1000)).collect();
            let mut output = Vec::new();
            host::serve(name, dir.path(), &plan, calls.as_bytes(), &mut output).unwrap();
            let mut model = model::Model::new(&stream, PLAN.ids);
            let replies = String::from_utf8(output).unwrap();
            assert_eq!(replies.lines().count(), 61, "{name:?}");
            for (call, reply) in replies.lines().skip(1).enumerate() {
                let reply: host::Reply = serde_json::from_str(reply).unwrap();
                let first = call as u32 * 1000;
                model.check(first..first + 1000, &reply.answers()).unwrap();
            }
        }
    }
}
