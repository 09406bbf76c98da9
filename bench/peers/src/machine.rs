use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use rustix::fs::Advice;
use serde::{Deserialize, Serialize};

use crate::Result;

pub(crate) fn processor_time() -> Duration {
    // The clock of rustix needs data that valgrind hides.
    ProcessTime::now().as_duration()
}

/// Background work has ended after this time of almost no processor use.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

pub(crate) fn wait_until_idle(quiet: Duration) {
    let mut before = processor_time();
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < quiet {
        std::thread::sleep(Duration::from_millis(50));
        let now = processor_time();
        if now - before > Duration::from_millis(2) {
            quiet_since = Instant::now();
        }
        before = now;
    }
}

pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()))
        .unwrap_or("unknown processor");
    let processors = info.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = field(&memory, "MemTotal:").unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {processors} processors, {} GiB, Linux {}", (kib + (1 << 19)) >> 20, kernel.trim())
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

pub(crate) fn forget_peak() {
    // Otherwise the peak covers the whole process.
    _ = fs::write("/proc/self/clear_refs", "5");
}

pub(crate) fn peak_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM:").unwrap_or(0) * 1024
}

pub(crate) fn resident_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmRSS:").unwrap_or(0) * 1024
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Io {
    pub(crate) read_calls: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_calls: u64,
    pub(crate) written_bytes: u64,
    pub(crate) device_read_bytes: u64,
}

impl Io {
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/io").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let count = |name| field(text, name).unwrap_or(0);
        Self {
            read_calls: count("syscr:"),
            read_bytes: count("rchar:"),
            write_calls: count("syscw:"),
            written_bytes: count("wchar:"),
            device_read_bytes: count("read_bytes:"),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            read_calls: self.read_calls - before.read_calls,
            read_bytes: self.read_bytes - before.read_bytes,
            write_calls: self.write_calls - before.write_calls,
            written_bytes: self.written_bytes - before.written_bytes,
            device_read_bytes: self.device_read_bytes - before.device_read_bytes,
        }
    }
}

/// Ticks of all processors: busy, including time taken by the host, and total.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; user includes guests.
        let ticks: Vec<u64> = first.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: all - idle, all }
    }

    /// The share of the machine that other processes used since `before`, including kernel threads that write back data.
    pub(crate) fn others_since(self, before: Self, own: Duration) -> f64 {
        const TICKS_A_SECOND: f64 = 100.0;
        let all = (self.all - before.all).max(1) as f64;
        let busy = (self.busy - before.busy) as f64;
        ((busy - own.as_secs_f64() * TICKS_A_SECOND - 2.0) / all).max(0.0)
    }
}

fn files(dir: &Path, each: &mut impl FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_dir() {
            files(&entry.path(), each)?;
        } else {
            each(&entry.path(), &found)?;
        }
    }
    Ok(())
}

pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    files(dir, &mut |_, found| {
        bytes += found.blocks() * 512;
        Ok(())
    })?;
    Ok(bytes)
}

pub(crate) fn forget_pages(dir: &Path) -> Result<()> {
    Ok(files(dir, &mut |path, _| {
        let file = File::open(path)?;
        rustix::fs::fdatasync(&file)?;
        Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
    })?)
}

pub(crate) fn fetch_pages(dir: &Path) -> Result<()> {
    Ok(files(dir, &mut |path, _| io::copy(&mut File::open(path)?, &mut io::sink()).map(drop))?)
}

pub(crate) fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.metadata()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_and_output_are_read_by_name_and_subtracted() {
        let text = "rchar: 100\nwchar: 20\nsyscr: 3\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 0\n";
        let io = Io::parse(text);
        assert_eq!((io.read_calls, io.read_bytes, io.write_calls, io.written_bytes), (3, 100, 2, 20));
        assert_eq!(io.device_read_bytes, 4096);
        assert_eq!(io.since(io), Io::default());
    }

    #[test]
    fn the_share_of_others_is_what_is_busy_without_this_process() {
        let before = Ticks::parse("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = Ticks::parse("cpu  150 0 110 1040 0 0 0 0 0 0\n");
        let share = after.others_since(before, Duration::from_millis(300));
        assert!((share - 28.0 / 300.0).abs() < 1e-9, "{share}: 60 of 300 ticks busy, 30 of them its own");
        let soon = Ticks::parse("cpu  101 0 101 800 0 0 0 0 0 0\n");
        assert_eq!(soon.others_since(before, Duration::ZERO), 0.0, "too short to tell");
        assert_eq!(after.others_since(before, Duration::from_secs(9)), 0.0);
    }

    #[test]
    fn a_copied_directory_takes_the_same_space() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/a"), vec![1; 10_000]).unwrap();
        fs::write(from.join("b"), vec![1; 5_000]).unwrap();
        copy_dir(&from, &to).unwrap();
        forget_pages(&to).unwrap();
        fetch_pages(&to).unwrap();
        assert_eq!(fs::read(to.join("inner/a")).unwrap(), vec![1; 10_000]);
        assert_eq!(fs::read(to.join("b")).unwrap().len(), 5_000);
        assert!(disk_bytes(&to).unwrap() >= 15_000);
    }
}
