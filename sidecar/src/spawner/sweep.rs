//! Killing all processes of a command.
//!
//! Which those are is decided by three marks, because each alone can be shed by an honest daemon: descent (lost when
//! a parent ends), session (lost by setsid), and the marker in the environment (lost by clearing it). Only what sheds
//! all three survives, and that ends with the sandbox.
//!
//! A process can fork between the look and the kill, so it is look, kill, look again until a look finds nothing.
//! Nobody is stopped first: a stopped process still has to be killed, and a fork bomb makes new ones all the same;
//! what wins against it is that every round takes all that are there. Process ids are not reused meanwhile: the
//! kernel hands them out in a circle of at least 32768, and the leader's own is reaped by nobody but this process.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::lineage::{self, Entry};
use super::plan::MARKER;
use crate::sys;

/// With the pauses below this is about two seconds.
const MAX_ROUNDS: u32 = 400;
const QUICK_ROUNDS: u32 = 20;
const QUICK_PAUSE: Duration = Duration::from_millis(1);
const SLOW_PAUSE: Duration = Duration::from_millis(5);
/// Arguments and environment of a process are at most a few times the megabyte that a command starts with.
const MAX_ENVIRON_BYTES: u64 = 4 << 20;

/// What identifies the processes of one command.
#[derive(Debug)]
pub(super) struct Marks {
    leader: i32,
    marker: Vec<u8>,
}

impl Marks {
    pub(super) fn new(leader: Pid, exec_id: &str) -> Self {
        Self { leader: leader.as_raw(), marker: format!("{MARKER}={exec_id}").into_bytes() }
    }

    /// The living processes of the command.
    pub(super) fn members(&self) -> BTreeSet<i32> {
        let entries = snapshot();
        let related = self.related(&entries);
        let marked: BTreeSet<i32> = entries
            .iter()
            .map(|entry| entry.pid)
            .filter(|pid| related.contains(pid) || self.marks(*pid))
            .collect();
        lineage::tree(&entries, |entry| marked.contains(&entry.pid))
    }

    fn related(&self, entries: &[Entry]) -> BTreeSet<i32> {
        lineage::tree(entries, |entry| entry.pid == self.leader || entry.session == self.leader)
    }

    fn marks(&self, pid: i32) -> bool {
        let Ok(file) = File::open(format!("/proc/{pid}/environ")) else {
            return false;
        };
        let mut environ = Vec::new();
        // A process that ended meanwhile reads as an error or as nothing; both mean that it is no member.
        file.take(MAX_ENVIRON_BYTES).read_to_end(&mut environ).is_ok()
            && lineage::carries(&environ, &self.marker)
    }
}

/// A kill under way.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The command's number.
    pub(super) id: u64,
    marks: Marks,
    rounds: u32,
    due: Instant,
}

impl Sweep {
    pub(super) fn new(id: u64, marks: Marks, now: Instant) -> Self {
        Self { id, marks, rounds: 0, due: now }
    }

    /// When the next round is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// One round: kills all that is there. Returns how many are left for good once the kill is complete.
    pub(super) fn round(&mut self, now: Instant) -> Option<u32> {
        // First by descent and session, without a look into anyone's memory: that look can be made to wait by the
        // process that it is for.
        let related = self.marks.related(&snapshot());
        signal(&related, libc::SIGKILL);
        let members = self.marks.members();
        signal(&members, libc::SIGKILL);
        self.rounds += 1;
        self.due = now + if self.rounds < QUICK_ROUNDS { QUICK_PAUSE } else { SLOW_PAUSE };
        let done = (related.is_empty() && members.is_empty()) || self.rounds == MAX_ROUNDS;
        done.then(|| u32::try_from(members.len()).unwrap_or(u32::MAX))
    }
}

/// Sends a signal to all of `pids`.
pub(super) fn signal(pids: &BTreeSet<i32>, number: i32) {
    pids.iter().for_each(|pid| sys::signal(*pid, number));
}

fn snapshot() -> Vec<Entry> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| lineage::parse_stat(pid, &stat(pid)?)).collect()
}

/// The name in it is the program's to choose and need not be text.
fn stat(pid: i32) -> Option<String> {
    fs::read(format!("/proc/{pid}/stat")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
