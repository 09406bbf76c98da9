//! Where a run takes place: what the processor is, what was pinned, how busy it is, how much memory is used.

use std::fs;

/// Binds the calling thread to one processor; says what was done.
pub(crate) fn pin(cpu: Option<usize>) -> String {
    match cpu {
        Some(cpu) if bind(cpu) => format!("pinned to processor {cpu}"),
        Some(cpu) => format!("not pinned (processor {cpu} could not be taken)"),
        None => "not pinned".into(),
    }
}

#[cfg(target_os = "linux")]
fn bind(cpu: usize) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return false;
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn bind(_: usize) -> bool {
    false
}

/// The processor and how many of it there are.
pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()))
        .unwrap_or("unknown processor");
    // As the system lists them: a pinned thread sees but one.
    let processors = info.lines().filter(|line| line.starts_with("processor")).count();
    format!("{model}, {processors} processors, {}", std::env::consts::OS)
}

/// The load of the last minute, as the system counts it; this program's own is part of it.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").into()
}

/// The most memory that this process has had at one time since the last [`forget_peak`], in bytes; `None` where the
/// system does not tell.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Lets the peak begin anew; `false` if the system refuses, and the peak is then that of the whole run.
pub(crate) fn forget_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}
