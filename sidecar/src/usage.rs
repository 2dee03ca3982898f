//! The sandbox's resource usage, read from the sidecar's own control group, since commands are forked there.
//!
//! gVisor has control groups of its own, in the form of version 1, and counts files in memory with them.

use std::fs;

use wire::agent::UsageReport;
use wire::agent::usage_report::Counter;

use crate::settings::Limits;

/// The sidecar and its spawner, which are in the group too.
const OWN_TASKS: u32 = 2;

/// Usage of the root file system, and of those in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes of files in memory.
    pub in_memory_bytes: u64,
    /// Whether it holds what was written in the sandbox, and nothing else.
    pub is_own: bool,
}

/// Who counts CPU time, by the kernel's name: gVisor charges every process that could run for a processor that it has not.
pub fn counter(kernel: &str) -> Counter {
    if kernel.to_lowercase().contains("gvisor") { Counter::Sandbox } else { Counter::Node }
}

/// Current usage, with `disk` and the limits that the sandbox was given; 0 for what is not counted here.
pub fn report(disk: Disk, limits: Limits, counter: Counter) -> UsageReport {
    UsageReport {
        cpu_us: cpu_us().unwrap_or_default(),
        memory_bytes: memory_bytes().unwrap_or_default(),
        memory_limit_bytes: limits.memory_bytes,
        disk_bytes: disk.is_own.then_some(disk.used_bytes),
        disk_limit_bytes: limits.disk_bytes,
        processes: tasks().unwrap_or_default().saturating_sub(OWN_TASKS),
        processes_limit: limits.pids,
        counter: counter.into(),
        memory_files_bytes: disk.in_memory_bytes,
    }
}

/// Version 2 of control groups, then version 1.
fn cpu_us() -> Option<u64> {
    let of_version_2 = || field(&read("cpu.stat")?, "usage_usec");
    let of_version_1 = || Some(number(&read("cpuacct/cpuacct.usage")?)? / 1000);
    of_version_2().or_else(of_version_1)
}

/// Memory in use, without the pages that the kernel takes back when memory is needed.
fn memory_bytes() -> Option<u64> {
    let idle = |file: &str, name: &str| read(file).and_then(|text| field(&text, name)).unwrap_or(0);
    if let Some(used) = read("memory.current").as_deref().and_then(number) {
        return Some(used.saturating_sub(idle("memory.stat", "inactive_file")));
    }
    let used = number(&read("memory/memory.usage_in_bytes")?)?;
    Some(used.saturating_sub(idle("memory/memory.stat", "total_inactive_file")))
}

/// Processes and their further threads, which the limit counts.
fn tasks() -> Option<u32> {
    let current = read("pids.current").or_else(|| read("pids/pids.current"))?;
    current.trim().parse().ok()
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "usage_usec_x 1\nusage_usec 20\nuser_usec 3\n";
        assert_eq!((field(text, "usage_usec"), field(text, "nice")), (Some(20), None));
        assert_eq!((number("max\n"), number("7\n")), (None, Some(7)));
    }

    #[test]
    fn the_node_s_disk_is_not_told_as_the_sandbox_s() {
        let told = |is_own, disk_bytes| {
            let disk = Disk { used_bytes: 5, is_own, ..Disk::default() };
            let report = report(disk, Limits { disk_bytes, ..Limits::default() }, Counter::Node);
            (report.disk_bytes, report.disk_limit_bytes)
        };
        assert_eq!((told(true, 50), told(true, 0)), ((Some(5), 50), (Some(5), 0)));
        assert_eq!((told(false, 50), told(false, 0)), ((None, 50), (None, 0)));
    }

    #[test]
    fn files_in_memory_are_told_apart_also_where_there_are_none() {
        let told = |in_memory_bytes| {
            let disk = Disk { used_bytes: 5, in_memory_bytes, ..Disk::default() };
            report(disk, Limits::default(), Counter::Node).memory_files_bytes
        };
        assert_eq!((told(7), told(0)), (7, 0));
    }

    #[test]
    fn only_gvisor_counts_for_itself() {
        assert_eq!(counter("Linux version 4.19.0-gvisor #1 SMP"), Counter::Sandbox);
        assert_eq!(counter("Linux version 6.1.0-28-cloud-amd64"), Counter::Node);
    }
}
