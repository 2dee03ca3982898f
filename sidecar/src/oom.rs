//! Detects OOM kills, by the counter of the sidecar's own control group.
//!
//! Commands run in the sidecar's control group, so its counter covers them. It counts kills and does not name the
//! process: a process that ended by SIGKILL while the counter rose is taken for the victim.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::spawner::frame::Ending;

/// Control groups version 2, then version 1; both files have a line `oom_kill N`.
const FILES: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];
const MAX_FILE_BYTES: usize = 512;
const SIGKILL: u32 = libc::SIGKILL.cast_unsigned();
/// A shell's exit code after SIGKILL ended its child.
const SHELL_SIGKILL: i32 = 128 + libc::SIGKILL;

/// The kernel's counter of OOM kills; absent where the kernel does not count (under gVisor the whole pod is killed).
#[derive(Debug)]
pub struct OomCounter {
    file: Option<File>,
}

impl OomCounter {
    /// Opens the counter of this process's control group.
    pub fn open() -> Self {
        let counters = FILES.iter().filter_map(|path| File::open(path).ok());
        Self { file: counters.into_iter().find(|file| count(file).is_some()) }
    }

    /// How many processes have been killed so far. Cost: about 2 us.
    pub fn read(&self) -> u64 {
        self.file.as_ref().and_then(count).unwrap_or(0)
    }
}

fn count(file: &File) -> Option<u64> {
    let mut buffer = [0; MAX_FILE_BYTES];
    let length = file.read_at(&mut buffer, 0).ok()?;
    parse(std::str::from_utf8(&buffer[..length]).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether a process with this ending may be the victim of an OOM kill.
pub fn looks_killed(ending: Ending) -> bool {
    matches!(ending, Ending::Signalled(SIGKILL) | Ending::Exited(SHELL_SIGKILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(parse("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(parse("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        assert_eq!(parse("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn only_sigkill_looks_like_it_also_through_a_shell() {
        assert!(looks_killed(Ending::Signalled(9)) && looks_killed(Ending::Exited(137)));
        assert!(!looks_killed(Ending::Signalled(15)) && !looks_killed(Ending::Exited(1)));
    }
}
