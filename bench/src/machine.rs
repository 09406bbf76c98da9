use std::fs;

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

pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()))
        .unwrap_or("unknown processor");
    let processors = info.lines().filter(|line| line.starts_with("processor")).count();
    format!("{model}, {processors} processors, {}", std::env::consts::OS)
}

/// The load of the last minute, including this program.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").into()
}

/// The peak memory of this process, in bytes; `None` if it is unknown.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
