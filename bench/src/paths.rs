//! File paths, one per line. Looks up every path and three absent paths for each, and scans directories. Every answer
//! is checked.
//!
//! Debian's index of package contents has more than two million paths:
//! ```sh
//! apt-get install apt-file && apt-file update
//! /usr/lib/apt/apt-helper cat-file /var/lib/apt/lists/*Contents* | sed 's/[[:space:]]\+[^[:space:]]*$//' |
//!     cargo run --release -p sievedb-bench -- paths -
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::{Path, PathBuf};

use sievedb::{Db, Options, WriteBatch};

use crate::clock::{self, Took};
use crate::random::{below, bytes_of, number, shuffle};
use crate::report::{Report, Table, count};
use crate::{Result, machine, store};

const SCANS: u64 = 2_000;
const SCAN_KEYS: usize = 2_000;
const BATCH_ENTRIES: usize = 1000;

/// Loads the lines of a file, looks up all of them and absent ones, and scans directories.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File of paths, one per line; - for standard input.
    file: PathBuf,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

struct Phase {
    name: &'static str,
    keys: u64,
    took: Took,
    blocks: u64,
}

type Key = Box<[u8]>;

const OPENING: &str = "The paths of the files of a machine are loaded in random order and looked up. So are absent paths, which differ from a \
     present one by a byte or by a name. A shorter bar is faster.";

pub(crate) fn run(args: &Args) -> Result<()> {
    eprintln!("reading …");
    let keys = read(&args.file)?;
    let mut order: Vec<u32> = (0..u32::try_from(keys.len())?).collect();
    shuffle(20, &mut order);
    let dir = tempfile::tempdir()?;
    let db = Options::new().open(dir.path().join("store"))?;
    let mut phases = Vec::new();
    phases.push(phase("load, in random order", &db, || load(&db, &keys, &order))?);
    let before = db.stats();
    phases.push(phase("get, present", &db, || present(&db, &keys, &order))?);
    phases.push(phase("get, a byte appended", &db, || {
        absent(&db, &keys, &order, |key, index| key.push(b"~0.xz"[below(number(21, index), 5) as usize]))
    })?);
    phases.push(phase("get, a byte changed", &db, || {
        absent(&db, &keys, &order, |key, index| change(key, index))
    })?);
    phases.push(phase("get, a sibling's name", &db, || absent(&db, &keys, &order, sibling))?);
    let after = db.stats();
    phases.push(phase("scan of a directory by prefix", &db, || scans(&db, &keys))?);
    let levels = store::levels(&before, &after, "default");
    db.close()?;

    let mut report = Report::new(
        "Real paths: measurements",
        "cargo run --release -p sievedb-bench -- paths FILE --write docs/benchmarks/paths.md",
    );
    report.text(&format!("{}; not pinned; load {} at the end.", machine::describe(), machine::load()));
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    report.text(&format!(
        "{} distinct paths with a mean length of {:.1} bytes, values of 8 bytes, default options, one \
         thread in addition to the store's two. Every answer was compared with a sorted list of the paths.",
        count(keys.len() as u64),
        bytes as f64 / keys.len() as f64
    ));
    let [seconds, rate, processor] = Took::CELLS;
    let mut table = Table::new(["phase", "keys", seconds, rate, processor, "data blocks per key"]);
    for phase in &phases {
        let [seconds, rate, processor] = phase.took.cells(phase.keys);
        table.row([
            phase.name.into(),
            count(phase.keys),
            seconds,
            rate,
            processor,
            format!("{:.5}", phase.blocks as f64 / phase.keys as f64),
        ]);
    }
    report.table(&table);
    report.open_with(OPENING, "processor µs per key", &table, 1, 4);
    report.text(&format!(
        "{} directories are scanned, up to {} paths each. Filters, probed by all lookups:",
        count(SCANS),
        count(SCAN_KEYS as u64)
    ));
    report.table(&store::level_table(&levels));
    report.write(args.write.as_deref())
}

fn read(file: &Path) -> Result<Vec<Key>> {
    let mut input: Box<dyn BufRead> = if file.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file)?))
    };
    let mut keys = Vec::new();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if !line.is_empty() {
            keys.push(line.as_slice().into());
        }
        line.clear();
    }
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() { Err("there are no lines".into()) } else { Ok(keys) }
}

fn phase(name: &'static str, db: &Db, work: impl FnOnce() -> Result<u64>) -> Result<Phase> {
    eprintln!("{name} …");
    let before = store::data_blocks(&db.stats());
    let (took, keys) = clock::took(work);
    Ok(Phase { name, keys: keys?, took, blocks: store::data_blocks(&db.stats()) - before })
}

fn load(db: &Db, keys: &[Key], order: &[u32]) -> Result<u64> {
    for part in order.chunks(BATCH_ENTRIES) {
        let mut batch = WriteBatch::new();
        for &index in part {
            batch.put(&keys[index as usize], bytes_of(u64::from(index)));
        }
        db.write(batch)?;
    }
    db.flush()?;
    db.settle()?;
    db.open_tables()?;
    Ok(keys.len() as u64)
}

fn present(db: &Db, keys: &[Key], order: &[u32]) -> Result<u64> {
    for &index in order {
        let key = &keys[index as usize];
        if db.get(key)?.as_deref() != Some(&bytes_of(u64::from(index))[..]) {
            return Err(format!("{} has a wrong value or is missing", key.escape_ascii()).into());
        }
    }
    Ok(order.len() as u64)
}

fn absent(db: &Db, keys: &[Key], order: &[u32], alter: impl Fn(&mut Vec<u8>, u64)) -> Result<u64> {
    let mut asked = 0;
    let mut key = Vec::new();
    for &index in order {
        key.clear();
        key.extend_from_slice(&keys[index as usize]);
        alter(&mut key, index.into());
        let exists = keys.binary_search_by(|other| other[..].cmp(&key)).is_ok();
        if db.get(&key)?.is_some() != exists {
            return Err(format!("wrong answer for {}", key.escape_ascii()).into());
        }
        asked += 1;
    }
    Ok(asked)
}

fn change(key: &mut [u8], index: u64) {
    let name = key.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let at = name + below(number(22, index), (key.len() - name).max(1) as u64) as usize;
    if let Some(byte) = key.get_mut(at) {
        *byte = if *byte == b'z' { b'a' } else { byte.wrapping_add(1) };
    }
}

fn sibling(key: &mut Vec<u8>, index: u64) {
    const NAMES: [&[u8]; 6] = [b"README", b"index.html", b"Makefile", b"config", b".gitignore", b"main.c"];
    key.truncate(key.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1));
    key.extend_from_slice(NAMES[below(number(23, index), NAMES.len() as u64) as usize]);
}

fn scans(db: &Db, keys: &[Key]) -> Result<u64> {
    let mut seen = 0;
    for scan in 0..SCANS {
        let path = &keys[below(number(24, scan), keys.len() as u64) as usize];
        let Some(slash) = path.iter().rposition(|&byte| byte == b'/') else { continue };
        let prefix = &path[..=slash];
        let first = keys.partition_point(|key| key[..] < *prefix);
        let mut expected = keys[first..].iter().take_while(|key| key.starts_with(prefix)).take(SCAN_KEYS);
        for entry in db.prefix(prefix).take(SCAN_KEYS) {
            if expected.next().map(|key| &key[..]) != Some(&entry?.0[..]) {
                return Err(format!("the scan of {} gave a wrong key", prefix.escape_ascii()).into());
            }
            seen += 1;
        }
        if expected.next().is_some() {
            return Err(format!("the scan of {} ended too early", prefix.escape_ascii()).into());
        }
    }
    Ok(seen)
}
