//! `sievedb uniq` compared with `sort -u` and `awk '!seen[$0]++'`: time and peak memory for generated lines and real
//! paths. All tools must print the same number of lines.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::random::number;
use crate::report::{Report, Table, count, mib};
use crate::rounds::Spread;
use crate::{Result, machine};

/// Measures `sievedb uniq` and other tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The `sievedb` command, built for release.
    #[arg(long, value_name = "FILE", default_value = "target/release/sievedb")]
    sievedb: PathBuf,
    /// Generated lines.
    #[arg(long, default_value_t = 10_000_000)]
    lines: u64,
    /// A file of real paths, one per line: `find / -xdev > FILE`.
    #[arg(long, value_name = "FILE")]
    paths: PathBuf,
    /// Lines made from the paths; if there are fewer paths, they are repeated below other directories.
    #[arg(long, default_value_t = 2_000_000)]
    path_lines: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

struct Sample {
    seconds: f64,
    processor: f64,
    peak_bytes: u64,
    lines: u64,
}

struct Tool {
    name: &'static str,
    is_again: bool,
    script: &'static str,
}

/// `$1` is the file, `$2` the directory of the stores, `$3` the command.
const TOOLS: [Tool; 6] = [
    Tool { name: "`sievedb uniq`, a new store", is_again: false, script: r#"exec "$3" uniq "$2/a" "$1""# },
    Tool { name: "`sievedb uniq` again", is_again: true, script: r#"exec "$3" uniq "$2/a" "$1""# },
    Tool {
        name: "`sievedb uniq --memory 64M`, a new store",
        is_again: false,
        script: r#"exec "$3" uniq --memory 64M "$2/b" "$1""#,
    },
    Tool {
        name: "`sievedb uniq --memory 64M` again",
        is_again: true,
        script: r#"exec "$3" uniq --memory 64M "$2/b" "$1""#,
    },
    Tool { name: "`sort -u` (`LC_ALL=C`)", is_again: false, script: r#"LC_ALL=C exec sort -u "$1""# },
    Tool { name: "`awk '!seen[$0]++'`", is_again: false, script: r#"exec awk '!seen[$0]++' "$1""# },
];

const OPENING: &str = "`sievedb uniq`, `sort -u` and `awk` each remove the repeated lines of the same file. A shorter bar is faster. Only \
     `sievedb uniq` stores the lines, so that a second call prints only new ones.";

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::new(
        "`sievedb uniq`, `sort -u` and `awk`: measurements",
        "cargo run --release -p sievedb-bench -- uniq --paths FILE --write docs/benchmarks/uniq.md",
    );
    report.text(&format!(
        "Each tool reads a file and prints its distinct lines. `sievedb uniq` also stores them, durably \
         every 100 ms, so a later call prints only new lines: *again* is a second call on the same store. \
         `sort` and `awk` start without earlier lines. Median of {} runs in turns (least–greatest); all \
         tools print the same number of lines. *Peak memory* covers the process without the pages of the \
         file. `awk` is {}.",
        args.rounds,
        awk()
    ));
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("lines");
    let bytes = generate(&file, args.lines)?;
    report.heading("Generated lines");
    report.text(&format!(
        "{} lines, {}, each a URL with a random number; half as many numbers are possible.",
        count(args.lines),
        mib(bytes)
    ));
    let times = measure(&mut report, args, &file, dir.path())?;
    report.open_with(OPENING, "seconds, generated lines", &times, 1, 1);
    let (bytes, paths) = real(&args.paths, &file, args.path_lines)?;
    report.heading("Real paths");
    let repeated = if paths < args.path_lines { ", then the same below other directories" } else { "" };
    report.text(&format!(
        "{} lines, {}: {} file paths of a machine, as printed by `find`{repeated}.",
        count(args.path_lines),
        mib(bytes),
        count(paths)
    ));
    measure(&mut report, args, &file, dir.path())?;
    report.text(&format!("{}; load {} at the end.", machine::describe(), machine::load()));
    report.write(args.write.as_deref())
}

fn awk() -> String {
    let path = fs::canonicalize("/usr/bin/awk");
    path.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_default()
}

fn generate(path: &Path, lines: u64) -> Result<u64> {
    let mut out = BufWriter::new(File::create(path)?);
    for line in 0..lines {
        let drawn = number(1, line) % (lines / 2);
        writeln!(out, "https://example.org/{:016x}", number(2, drawn))?;
    }
    out.flush()?;
    Ok(fs::metadata(path)?.len())
}

fn real(paths: &Path, out: &Path, lines: u64) -> Result<(u64, u64)> {
    let mut writer = BufWriter::new(File::create(out)?);
    let (mut written, mut paths_read) = (0, 0);
    for copy in 0.. {
        for path in BufReader::new(File::open(paths)?).split(b'\n') {
            if written == lines {
                writer.flush()?;
                return Ok((fs::metadata(out)?.len(), paths_read));
            }
            if copy > 0 {
                write!(writer, "/copy {copy}")?;
            }
            writer.write_all(&path?)?;
            writer.write_all(b"\n")?;
            written += 1;
            paths_read += u64::from(copy == 0);
        }
        if written == 0 {
            return Err("the file of paths is empty".into());
        }
    }
    unreachable!("the loop ends with the last line")
}

fn measure(report: &mut Report, args: &Args, file: &Path, dir: &Path) -> Result<Table> {
    let mut samples: [Vec<Sample>; TOOLS.len()] = Default::default();
    for round in 0..args.rounds {
        let stores = dir.join("stores");
        fs::create_dir(&stores)?;
        for turn in 0..TOOLS.len() {
            let tool = if round % 2 == 0 { turn } else { (turn + 2) % TOOLS.len() };
            samples[tool].push(run_tool(&TOOLS[tool], args, file, &stores)?);
        }
        fs::remove_dir_all(&stores)?;
    }
    let distinct = samples[0][0].lines;
    for (tool, samples) in TOOLS.iter().zip(&samples) {
        let wanted = if tool.is_again { 0 } else { distinct };
        if let Some(wrong) = samples.iter().find(|sample| sample.lines != wanted) {
            return Err(format!("{} printed {} lines instead of {wanted}", tool.name, wrong.lines).into());
        }
    }
    report.text(&format!("{} lines are distinct.", count(distinct)));
    let mut table = Table::new(["tool", "seconds", "processor, seconds", "peak memory"]);
    for (tool, samples) in TOOLS.iter().zip(&samples) {
        table.row([
            tool.name.to_owned(),
            Spread::of(samples.iter().map(|sample| sample.seconds)).to_string(),
            Spread::of(samples.iter().map(|sample| sample.processor)).to_string(),
            mib(samples.iter().map(|sample| sample.peak_bytes).max().unwrap_or(0)),
        ]);
    }
    report.table(&table);
    Ok(table)
}

fn run_tool(tool: &Tool, args: &Args, file: &Path, stores: &Path) -> Result<Sample> {
    eprintln!("{} …", tool.name);
    let before = processor_of_children()?;
    let start = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", tool.script, "sh"])
        .args([file, stores, &fs::canonicalize(&args.sievedb)?])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = child.stdout.take().ok_or("the tool has no output")?;
    let lines = std::thread::spawn(move || count_lines(&mut out));
    let mut peak_bytes = 0;
    let status = loop {
        peak_bytes = peak_of(child.id()).unwrap_or(peak_bytes);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let seconds = start.elapsed().as_secs_f64();
    let lines = lines.join().expect("counting does not panic")?;
    if !status.success() {
        return Err(format!("{}: {status}", tool.name).into());
    }
    Ok(Sample { seconds, processor: processor_of_children()? - before, peak_bytes, lines })
}

fn count_lines(out: &mut impl std::io::Read) -> std::io::Result<u64> {
    let (mut buffer, mut lines) = (vec![0; 1 << 16], 0);
    loop {
        let read = out.read(&mut buffer)?;
        if read == 0 {
            return Ok(lines);
        }
        lines += buffer[..read].iter().filter(|&&byte| byte == b'\n').count() as u64;
    }
}

fn peak_of(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn processor_of_children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name may contain spaces. Fields 16 and 17 follow it.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|ticks| ticks.parse::<f64>().ok());
    Ok(ticks(16).zip(ticks(17)).map(|(user, system)| user + system).ok_or("no processor time in /proc")?
        / 100.0)
}
