//! The memory limit of this process: the smaller of the machine's memory and the limits of its control groups.
//!
//! On Linux, `proc/self/cgroup` lists the process's group in each hierarchy. A group is a directory below
//! `sys/fs/cgroup` (version 2) or `sys/fs/cgroup/memory` (version 1). Its parents have limits too. In a container, only
//! the root may exist, and it is the container's group.

use std::fs;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    Cgroup(u64),
    Machine(u64),
}

impl MemoryLimit {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Cgroup(bytes) | Self::Machine(bytes) => bytes,
        }
    }
}

pub(crate) fn memory_limit(root: &Path) -> Option<MemoryLimit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| limit_of_group(root, line)).map(MemoryLimit::Cgroup);
    let of_machine = machine_bytes(root).map(MemoryLimit::Machine);
    // In version 1, a huge number means no limit.
    of_machine.into_iter().chain(of_groups).min_by_key(|limit| limit.bytes())
}

fn limit_of_group(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = fields.next().zip(fields.next())?;
    let (hierarchy, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let names = Path::new(path).components().filter(|name| matches!(name, Component::Normal(_)));
    let group: PathBuf = names.collect();
    let limit = |group: &Path| {
        let text = fs::read_to_string(root.join(hierarchy).join(group).join(file)).ok()?;
        text.trim().parse().ok()
    };
    group.ancestors().filter_map(limit).min()
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn limit(files: &[(&str, &str)]) -> Option<MemoryLimit> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_limit(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\n");

    #[test]
    fn without_groups_it_is_the_memory_of_the_machine_and_without_files_it_is_not_known() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[MACHINE]), Some(MemoryLimit::Machine(16 * GIB)));
        assert_eq!(
            limit(&[("proc/meminfo", "MemTotal: many kB"), ("proc/self/cgroup", "no group\n:\n")]),
            None
        );
    }

    #[test]
    fn of_version_2_the_least_limit_of_a_group_and_those_above_it_counts() {
        let group = ("proc/self/cgroup", "0::/user.slice/job\n");
        let own = |text| ("sys/fs/cgroup/user.slice/job/memory.max", text);
        let above = |text| ("sys/fs/cgroup/user.slice/memory.max", text);
        assert_eq!(limit(&[MACHINE, group, own("104857600\n")]), Some(MemoryLimit::Cgroup(100 << 20)));
        let both = limit(&[MACHINE, group, own("max\n"), above("209715200\n")]);
        assert_eq!(both, Some(MemoryLimit::Cgroup(200 << 20)));
        assert_eq!(
            limit(&[MACHINE, group, own("max\n"), above("max\n")]),
            Some(MemoryLimit::Machine(16 * GIB))
        );
        let more = limit(&[MACHINE, group, own("99999999999999\n")]);
        assert_eq!(more, Some(MemoryLimit::Machine(16 * GIB)), "more than the machine has");
    }

    #[test]
    fn of_version_1_the_group_of_the_memory_controller_counts_and_no_limit_is_a_huge_number() {
        let group = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n0::/a\n");
        let own = |text| ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", text);
        assert_eq!(limit(&[MACHINE, group, own("104857600\n")]), Some(MemoryLimit::Cgroup(100 << 20)));
        let none = limit(&[MACHINE, group, own("9223372036854771712\n")]);
        assert_eq!(none, Some(MemoryLimit::Machine(16 * GIB)));
    }

    #[test]
    fn in_a_container_the_root_has_the_limit_whatever_the_path_of_the_group() {
        for path in ["/", "/docker/0123abc", "/../..", "/kubepods/../x"] {
            let group = ("proc/self/cgroup", &*format!("0::{path}\n"));
            let found = limit(&[MACHINE, group, ("sys/fs/cgroup/memory.max", "104857600\n")]);
            assert_eq!(found, Some(MemoryLimit::Cgroup(100 << 20)), "{path}");
            let group = ("proc/self/cgroup", &*format!("9:memory:{path}\n"));
            let file = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
            assert_eq!(limit(&[MACHINE, group, file]), Some(MemoryLimit::Cgroup(100 << 20)), "{path}");
        }
    }
}
