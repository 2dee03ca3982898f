//! Kills all processes of a command.
//!
//! A process belongs to the command by any of three marks, because a normal daemon loses each of them: descent (lost
//! when a parent ends), process session (lost by setsid), and the marker among its environment variables (lost by
//! clearing them). Only a process that has lost all three survives, until the sandbox ends.
//!
//! A process can fork between the snapshot and the kill, so both are repeated until a snapshot finds none. The
//! processes are not stopped first: a stopped process still has to be killed, and a fork bomb makes new ones all the
//! same; killing wins because every round takes all that are there. After a snapshot the leader's process group is
//! killed first, by one call: that also hits processes started since, and a snapshot of a bomb's hundreds of processes
//! takes gVisor so long that there are many. Pids are not reused meanwhile: the kernel assigns them in a circle of at
//! least 32768, and only this process reaps the leader.
//!
//! A shell runs many commands, and one of them may be killed alone ([`Marks::of_command`]). Its processes are found by the
//! variable that the shell sets for each command, and by descent from the shell; a subshell has the shell's own variables,
//! but what it starts has the command's.
//!
//! The caller gets its report after [`REPORT_AFTER`], whatever is left, and the kill continues in the background. By
//! then a bomb may have used up the circle of pids, so only the marker, and descent from a process that carries it, count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::lineage::{self, Entry};
use super::plan::{COMMAND_MARKER, MARKER};
use crate::sys;

/// Shorter than the time for which the sidecar waits for the end of a kill.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// A process that is still there after this (stuck in the kernel) is left until the sandbox ends.
const MAX_DURATION: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: u32 = 20;
const QUICK_PAUSE: Duration = Duration::from_millis(1);
const SLOW_PAUSE: Duration = Duration::from_millis(5);
const BEHIND_PAUSE: Duration = Duration::from_millis(50);
/// How long a command on a terminal may take to end by itself after the hang-up.
const HANGUP_PATIENCE: Duration = Duration::from_millis(100);
/// No process can start with environment variables of more bytes (execve(2)).
const MAX_ENVIRON_BYTES: u64 = 6 << 20;
/// Environment variables that one snapshot reads in all: some milliseconds, in which no command starts.
const MAX_LOOK_BYTES: usize = 64 << 20;

/// The marks by which the processes of one command are found.
#[derive(Debug)]
pub(super) struct Marks {
    /// The leader's pid; `None` once the pid may have been reused.
    leader: Option<i32>,
    exec_id: String,
    /// Set: of the leader, a shell, only this command is meant, and never the leader itself.
    command: Option<ShellCommand>,
    /// Every process of the sandbox is meant, whatever marks it has.
    all: bool,
}

/// One command of a shell.
#[derive(Debug)]
struct ShellCommand {
    id: String,
    /// Children of the shell that earlier commands have left.
    spared: BTreeSet<i32>,
}

impl Marks {
    pub(super) fn new(leader: Pid, exec_id: &str) -> Self {
        Self { leader: Some(leader.as_raw()), exec_id: exec_id.to_owned(), command: None, all: false }
    }

    /// Every process of the sandbox.
    pub(super) fn of_all() -> Self {
        Self { leader: None, exec_id: String::new(), command: None, all: true }
    }

    /// The marks of one command of a shell, which is the leader. `spared`: children that earlier commands have left.
    pub(super) fn of_command(leader: Pid, exec_id: &str, id: String, spared: Vec<u32>) -> Self {
        let spared = spared.into_iter().map(u32::cast_signed).collect();
        Self { command: Some(ShellCommand { id, spared }), ..Self::new(leader, exec_id) }
    }

    /// The living processes of the command.
    pub(super) fn members(&self) -> BTreeSet<i32> {
        self.members_in(&Look::new())
    }

    fn members_in(&self, look: &Look) -> BTreeSet<i32> {
        if let Some(command) = &self.command {
            return self.members_of(command, look);
        }
        let related = self.related(&look.entries);
        lineage::tree(&look.entries, |entry| {
            related.contains(&entry.pid) || look.exec_ids.get(&entry.pid) == Some(&self.exec_id)
        })
    }

    fn members_of(&self, command: &ShellCommand, look: &Look) -> BTreeSet<i32> {
        let stays = |pid: i32| self.leader == Some(pid) || command.spared.contains(&pid);
        let entries: Vec<Entry> = look.entries.iter().filter(|entry| !stays(entry.pid)).copied().collect();
        let mut members = lineage::tree(&entries, |entry| match look.command_ids.get(&entry.pid) {
            Some(id) => *id == command.id,
            None => self.leader == Some(entry.parent),
        });
        loop {
            let parents: BTreeSet<i32> = entries
                .iter()
                .filter(|entry| members.contains(&entry.pid))
                .map(|entry| entry.parent)
                .filter(|parent| self.is_subshell(*parent, look) && !stays(*parent))
                .collect();
            if parents.is_subset(&members) {
                return members;
            }
            members.extend(parents);
            members = lineage::tree(&entries, |entry| members.contains(&entry.pid));
        }
    }

    /// Whether a process is one that the shell has forked and that runs no program of its own: its variables are still
    /// those that the shell was started with.
    fn is_subshell(&self, pid: i32, look: &Look) -> bool {
        look.exec_ids.get(&pid) == Some(&self.exec_id) && !look.command_ids.contains_key(&pid)
    }

    fn related(&self, entries: &[Entry]) -> BTreeSet<i32> {
        if self.command.is_some() {
            // Of two children of a shell one may be of an earlier command, which only the variables tell.
            return BTreeSet::new();
        }
        lineage::tree(entries, |entry| {
            self.all || self.leader.is_some_and(|leader| entry.pid == leader || entry.session == leader)
        })
    }
}

/// All processes, and the marks in their environment variables. Taken once for all kills under way.
struct Look {
    entries: Vec<Entry>,
    exec_ids: BTreeMap<i32, String>,
    command_ids: BTreeMap<i32, String>,
}

impl Look {
    fn new() -> Self {
        let entries = snapshot();
        let mut left = MAX_LOOK_BYTES;
        let (mut exec_ids, mut command_ids) = (BTreeMap::new(), BTreeMap::new());
        for pid in entries.iter().filter(|entry| !entry.zombie).map(|entry| entry.pid) {
            let environ = environ(pid);
            exec_ids.extend(lineage::value_of(&environ, MARKER).map(|exec_id| (pid, exec_id)));
            command_ids.extend(lineage::value_of(&environ, COMMAND_MARKER).map(|id| (pid, id)));
            let Some(rest) = left.checked_sub(environ.len()) else {
                break;
            };
            left = rest;
        }
        Self { entries, exec_ids, command_ids }
    }
}

/// Reads a process's environment variables; empty when it has ended meanwhile.
fn environ(pid: i32) -> Vec<u8> {
    let mut environ = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/environ")) {
        // A partial read counts too.
        let _ = file.take(MAX_ENVIRON_BYTES).read_to_end(&mut environ);
    }
    environ
}

/// A kill under way.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The command's number.
    pub(super) id: u64,
    marks: Marks,
    rounds: u32,
    due: Instant,
    report_at: Instant,
    reported: bool,
    last: Instant,
    /// Until then only the hang-up is sent.
    lenient_until: Instant,
    /// Sent to a shell before its processes are killed, so that it goes on with nothing when they end.
    shell_signal: Option<i32>,
}

impl Sweep {
    /// A kill that begins at once; of a command on a terminal it begins with a hang-up.
    pub(super) fn new(id: u64, marks: Marks, on_terminal: bool, now: Instant) -> Self {
        let lenient_until = if on_terminal { now + HANGUP_PATIENCE } else { now };
        let (report_at, last) = (now + REPORT_AFTER, now + MAX_DURATION);
        Self {
            id,
            marks,
            rounds: 0,
            due: now,
            report_at,
            reported: false,
            last,
            lenient_until,
            shell_signal: None,
        }
    }

    /// A kill of one command of a shell, which gets a signal before each round that kills.
    pub(super) fn with_signal(self, number: i32) -> Self {
        Self { shell_signal: Some(number), ..self }
    }

    /// Notes the result of a round. Returns whether there is another round, and the report if it is due: id and
    /// processes left.
    fn turn(&mut self, left: usize, goes_on: bool, now: Instant) -> (bool, Option<(u64, u32)>) {
        self.rounds += 1;
        let goes_on = goes_on && now < self.last;
        let report = !self.reported && (!goes_on || now >= self.report_at);
        if report {
            self.reported = true;
            self.marks.leader = None;
        }
        // What is started after the report is not meant, and a mark tells it from the rest only where there is one.
        let goes_on = goes_on && !(report && self.marks.all);
        let pause = match (self.reported, self.rounds < QUICK_ROUNDS) {
            (true, _) => BEHIND_PAUSE,
            (false, true) => QUICK_PAUSE,
            (false, false) => SLOW_PAUSE,
        };
        self.due = now + pause;
        (goes_on, report.then(|| (self.id, u32::try_from(left).unwrap_or(u32::MAX))))
    }

    /// The signals that this round sends.
    fn signals(&self, now: Instant) -> &'static [i32] {
        match (now < self.lenient_until, self.rounds) {
            (false, _) => &[libc::SIGKILL],
            // A stopped process does not handle the hang-up before it is continued.
            (true, 0) => &[libc::SIGHUP, libc::SIGCONT],
            (true, _) => &[],
        }
    }

    /// Whether it continues in the background, for a command with this id.
    pub(super) fn lingers(&self, exec_id: &str) -> bool {
        self.reported && self.marks.exec_id == exec_id
    }

    /// When the next round is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }
}

/// Runs one round of all `sweeps` that are due: kills what is there. Removes those that are complete; returns those to
/// be reported, with the number of processes that each has left.
pub(super) fn round(sweeps: &mut Vec<Sweep>, now: Instant) -> Vec<(u64, u32)> {
    if sweeps.iter().all(|sweep| sweep.due > now) {
        return Vec::new();
    }
    // First by descent and process session, without reading any process's memory: that read can be delayed by the
    // process itself. All processes are listed before any is killed: a child whose parent is gone is not recognized as
    // a descendant.
    let entries = snapshot();
    let mut hit = BTreeSet::new();
    for sweep in sweeps.iter().filter(|sweep| sweep.due <= now) {
        let related = sweep.marks.related(&entries);
        if let (Some(leader), None) = (sweep.marks.leader, &sweep.marks.command) {
            sweep.signals(now).iter().for_each(|number| sys::signal_group(leader, *number));
        }
        sweep.signals(now).iter().for_each(|number| signal(&related, *number));
        if sweep.marks.all {
            // Also what was forked since the snapshot.
            sys::kill_all();
        }
        if !related.is_empty() {
            hit.insert(sweep.id);
        }
    }
    let look = Look::new();
    let mut reported = Vec::new();
    sweeps.retain_mut(|sweep| {
        if sweep.due > now {
            return true;
        }
        let members = sweep.marks.members_in(&look);
        if let (Some(leader), Some(number), false) =
            (sweep.marks.leader, sweep.shell_signal, members.is_empty())
        {
            sys::signal(leader, number);
        }
        sweep.signals(now).iter().for_each(|number| signal(&members, *number));
        let goes_on = !members.is_empty() || hit.contains(&sweep.id);
        let (goes_on, report) = sweep.turn(members.len(), goes_on, Instant::now());
        reported.extend(report);
        goes_on
    });
    reported
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

/// The name in it is chosen by the program and need not be UTF-8.
fn stat(pid: i32) -> Option<String> {
    fs::read(format!("/proc/{pid}/stat")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_told_in_time_and_the_kill_goes_on_behind_that() {
        let began = Instant::now();
        let mut sweep = Sweep::new(7, Marks::new(Pid::from_raw(5), "e"), false, began);
        assert_eq!(sweep.turn(3, true, began), (true, None));
        assert_eq!(sweep.turn(2, true, began + REPORT_AFTER), (true, Some((7, 2))));
        assert_eq!(sweep.turn(1, true, began + 2 * REPORT_AFTER), (true, None));
        assert_eq!(sweep.turn(1, true, began + MAX_DURATION), (false, None));
    }

    #[test]
    fn a_kill_of_all_ends_with_its_report_so_that_nothing_started_later_is_hit() {
        let began = Instant::now();
        let mut sweep = Sweep::new(7, Marks::of_all(), false, began);
        assert_eq!(sweep.turn(3, true, began), (true, None));
        assert_eq!(sweep.turn(2, true, began + REPORT_AFTER), (false, Some((7, 2))));
        let entries = [(1, 0), (5, 1), (6, 1)].map(|(pid, parent)| Entry {
            pid,
            parent,
            session: pid,
            zombie: pid == 6,
        });
        assert_eq!(
            Marks::of_all().related(&entries),
            BTreeSet::from([5]),
            "neither the spawner nor what is dead"
        );
    }

    #[test]
    fn a_command_on_a_terminal_hears_the_hang_up_before_it_is_killed_and_any_other_does_not() {
        let (began, marks) = (Instant::now(), || Marks::new(Pid::from_raw(5), "e"));
        let mut sweep = Sweep::new(7, marks(), true, began);
        assert_eq!(sweep.signals(began), [libc::SIGHUP, libc::SIGCONT]);
        sweep.turn(1, true, began);
        assert!(sweep.signals(began + HANGUP_PATIENCE / 2).is_empty());
        assert_eq!(sweep.signals(began + HANGUP_PATIENCE), [libc::SIGKILL]);
        assert_eq!(Sweep::new(7, marks(), false, began).signals(began), [libc::SIGKILL]);
    }

    #[test]
    fn what_is_gone_at_once_is_told_at_once() {
        let began = Instant::now();
        let mut sweep = Sweep::new(7, Marks::new(Pid::from_raw(5), "e"), false, began);
        assert_eq!(sweep.turn(0, false, began), (false, Some((7, 0))));
    }

    #[test]
    fn of_a_shell_one_command_is_killed_and_neither_the_shell_nor_what_earlier_ones_left() {
        let entry = |pid, parent| Entry { pid, parent, session: 5, zombie: false };
        let entries = vec![
            entry(5, 1),   // the shell
            entry(10, 5),  // a subshell that an earlier command left
            entry(11, 10), // what that runs
            entry(12, 5),  // a program that an earlier command left
            entry(13, 12), // what that started, with other variables
            entry(20, 5),  // a child of the command
            entry(21, 20), // its child, with other variables
            entry(22, 5),  // a subshell of the command
            entry(30, 1),  // a daemon of the command
            entry(31, 1),  // a subshell of the command that has lost its parent
            entry(32, 31), // what that runs
            entry(40, 1),  // a daemon of an earlier command
            entry(50, 1),  // another exec
        ];
        let ids = |id: &str, pids: &[i32]| pids.iter().map(|pid| (*pid, id.to_owned())).collect::<Vec<_>>();
        let look = Look {
            entries,
            exec_ids: ids("shell", &[5, 10, 11, 12, 20, 22, 30, 31, 32, 40])
                .into_iter()
                .chain(ids("e", &[50]))
                .collect(),
            command_ids: ids("now", &[20, 30, 32]).into_iter().chain(ids("then", &[11, 12, 40])).collect(),
        };
        let marks = Marks::of_command(Pid::from_raw(5), "shell", "now".into(), vec![10]);
        assert_eq!(marks.members_in(&look), BTreeSet::from([20, 21, 22, 30, 31, 32]));
        assert_eq!(marks.related(&look.entries), BTreeSet::new());
    }

    #[test]
    fn behind_the_callers_back_the_leaders_number_says_nothing_and_nobody_is_hit_for_it() {
        let entry = |pid, parent, session| Entry { pid, parent, session, zombie: false };
        let entries = [entry(1, 0, 0), entry(5, 1, 5), entry(6, 1, 0)];
        let mut sweep = Sweep::new(7, Marks::new(Pid::from_raw(5), "e"), false, Instant::now());
        assert_eq!(sweep.marks.related(&entries), BTreeSet::from([5]));
        sweep.turn(1, true, sweep.report_at);
        assert_eq!(sweep.marks.related(&entries), BTreeSet::new());
    }
}
