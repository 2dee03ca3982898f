//! The spawner's main loop: receives orders, starts commands, reaps all processes, reports ends.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, Uid, fchown};

use super::channel::Channel;
use super::clone::{self, Child, Failure, Stack, Stage, Started};
use super::frame::{Abandon, Ending, Order, Program, Refusal, Report, Spawn};
use super::identity::Databases;
use super::memory_mounts;
use super::plan::{Plan, Refused};
use super::proc_mount::is_gvisor;
use super::setup::Setup;
use super::sweep::{self, Marks, Sweep};
use super::terminal;
use super::unreported::UnreportedStarts;
use crate::sys::{self, Ended};
use crate::usage::Disk;

/// Messages that are read in one turn of the loop; more than the sidecar has commands at a time.
const MAX_READS: usize = 512;
/// Processes that are reaped in one turn of the loop: those of a fork bomb end as fast as they are reaped.
const MAX_REAPS: usize = 32;
/// How much of a detail is sent: it may repeat a caller's value, which may be long.
const MAX_DETAIL_CHARS: usize = 1024;

/// A command whose process has not been reaped yet.
#[derive(Debug)]
struct Command {
    leader: Pid,
    exec_id: String,
    on_terminal: bool,
}

/// The descriptors that came with an order to spawn.
#[derive(Debug)]
enum Descriptors {
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
    /// The socket over which the terminal is to be sent.
    Socket(OwnedFd),
}

/// Standard input, output and error of a command.
#[derive(Debug)]
enum Stdio {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

/// The init of a sandbox.
pub(super) struct Spawner {
    setup: Setup,
    /// What a file worker runs.
    file_worker: extern "C" fn(),
    ended: SignalFd,
    stack: Stack,
    commands: BTreeMap<u64, Command>,
    /// Ordered but not started yet; at most as many as the sidecar lets run at a time.
    waiting: VecDeque<(Spawn, io::Result<Descriptors>)>,
    sweeps: Vec<Sweep>,
    /// Shells on terminals that are stopped while what a command of theirs has started is killed: which one, and the signal with which
    /// it is continued, by the number of the kill.
    stopped: BTreeMap<u64, (u64, u32)>,
    unreported: UnreportedStarts,
    /// Whether there may be more to reap, for which no further signal comes.
    reaping: bool,
}

impl Spawner {
    pub(super) fn new(setup: Setup, file_worker: extern "C" fn()) -> nix::Result<Self> {
        let awaited: SigSet = [Signal::SIGCHLD].into_iter().collect();
        let ended = SignalFd::with_flags(&awaited, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self {
            setup,
            file_worker,
            ended,
            stack: Stack::new(),
            commands: BTreeMap::new(),
            waiting: VecDeque::new(),
            sweeps: Vec::new(),
            stopped: BTreeMap::new(),
            unreported: UnreportedStarts::default(),
            reaping: false,
        })
    }

    /// Serves until the sidecar closes the socket. Starts come last in a turn and one at a time: each may take seconds
    /// when a command works against it, and the order to kill that command must not wait behind all of them.
    ///
    /// # Errors
    /// The sidecar is gone; this always ends so.
    pub(super) fn serve(&mut self, channel: &mut Channel) -> io::Result<()> {
        loop {
            let (orders, ends) = self.wait(channel)?;
            if ends || self.reaping {
                self.reap(channel)?;
            }
            if orders {
                self.listen(channel)?;
            }
            self.sweep(channel)?;
            while let Some(report) = self.unreported.overdue(Instant::now()) {
                channel.send(&report)?;
            }
            if let Some((spawn, descriptors)) = self.waiting.pop_front() {
                self.start(&spawn, descriptors, channel)?;
            }
        }
    }

    /// Takes all orders that have arrived: a kill may be queued behind many starts, each of which is a message of its
    /// own.
    fn listen(&mut self, channel: &mut Channel) -> io::Result<()> {
        for _ in 0..MAX_READS {
            if !channel.fill()? {
                return Ok(());
            }
            while let Some(order) = channel.next()? {
                self.handle(order, channel)?;
            }
        }
        Ok(())
    }

    /// Waits; returns whether there are orders, and whether processes have ended.
    fn wait(&self, channel: &Channel) -> io::Result<(bool, bool)> {
        let mut watched = [
            PollFd::new(channel.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.ended.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut watched, self.poll_timeout()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [orders, ends] = watched.map(|fd| fd.any().unwrap_or(false));
        Ok((orders, ends))
    }

    /// The time until the next start, the next round of a kill, or the next report of a start that is due.
    fn poll_timeout(&self) -> PollTimeout {
        if !self.waiting.is_empty() || self.reaping {
            return PollTimeout::ZERO;
        }
        let Some(due) = self.sweeps.iter().map(Sweep::due).chain(self.unreported.due()).min() else {
            return PollTimeout::NONE;
        };
        let left = due.saturating_duration_since(Instant::now());
        // Rounded up: otherwise the loop would spin during the last part of a millisecond.
        PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    }

    fn reap(&mut self, channel: &mut Channel) -> io::Result<()> {
        // One signal may stand for several ends, so its count means nothing; and there is never a second one to read.
        self.ended.read_signal()?;
        let mut room = MAX_REAPS;
        while room > 0
            && let Some((pid, ended)) = sys::reap()
        {
            room -= 1;
            let ending = match ended {
                Ended::Exited(code) => Ending::Exited(code),
                Ended::Signalled(signal) => Ending::Signalled(signal.cast_unsigned()),
            };
            // All others are orphans of commands, which are not reported.
            if let Some(id) =
                self.commands.iter().find(|(_, command)| command.leader.as_raw() == pid).map(|(id, _)| *id)
            {
                self.commands.remove(&id);
                let end = Report::Ended { id, ending };
                match self.unreported.take(id) {
                    Some(start) => channel.send_both(&start, &end)?,
                    None => channel.send(&end)?,
                }
            }
        }
        self.reaping = room == 0;
        Ok(())
    }

    fn handle(&mut self, order: Order, channel: &mut Channel) -> io::Result<()> {
        match order {
            Order::Spawn(spawn) => {
                let descriptors = match spawn.terminal {
                    Some(_) => channel.descriptors().map(|[socket]| Descriptors::Socket(socket)),
                    None => channel.descriptors().map(Descriptors::Pipes),
                };
                self.waiting.push_back((spawn, descriptors));
                Ok(())
            }
            Order::Signal { id, signal, tree } => {
                self.signal(id, signal, tree);
                Ok(())
            }
            Order::Kill { id } => match self.commands.get(&id) {
                Some(command) => {
                    let marks = Marks::new(command.leader, &command.exec_id);
                    self.sweeps.push(Sweep::new(id, marks, command.on_terminal, Instant::now()));
                    Ok(())
                }
                None => channel.send(&Report::Swept { id, left: 0 }),
            },
            Order::KillAll { id } => {
                self.sweeps.push(Sweep::new(id, Marks::of_all(), false, Instant::now()));
                Ok(())
            }
            Order::Abandon(order) => self.abandon(order, channel),
            Order::Ping { nonce } => channel.send(&Report::Pong { nonce }),
            Order::Disk { nonce } => channel.send(&Report::Disk { nonce, disk: disk() }),
        }
    }

    /// A shell on a terminal is stopped before, lest the signal meets it while it starts a job: it would be at its prompt,
    /// and the job would still take the terminal. Any other has the signal before each kill, and takes it up when what it
    /// waits for is killed. It is not stopped: gVisor sends SIGHUP to the group of a stopped process when an orphan of that group
    /// ends, and without a terminal what a shell starts is in its own group.
    fn abandon(&mut self, order: Abandon, channel: &mut Channel) -> io::Result<()> {
        let Abandon { id, shell, signal, command_id, spared } = order;
        let Some(command) = self.commands.get(&shell) else {
            return channel.send(&Report::Swept { id, left: 0 });
        };
        let marks = Marks::of_command(command.leader, &command.exec_id, command_id, spared);
        let sweep = Sweep::new(id, marks, false, Instant::now());
        if command.on_terminal {
            sys::signal(command.leader.as_raw(), libc::SIGSTOP);
            self.stopped.insert(id, (shell, signal));
            self.sweeps.push(sweep);
        } else {
            self.signal(shell, signal, false);
            self.signal(shell, libc::SIGCONT.cast_unsigned(), false);
            self.sweeps.push(sweep.with_signal(signal.cast_signed()));
        }
        Ok(())
    }

    fn start(
        &mut self,
        spawn: &Spawn,
        descriptors: io::Result<Descriptors>,
        channel: &mut Channel,
    ) -> io::Result<()> {
        let id = spawn.id;
        let stdio = descriptors.and_then(|descriptors| descriptors.stdio(spawn));
        match stdio.map_err(no_streams).and_then(|stdio| self.spawn(spawn, &stdio)) {
            Ok(Started { pid, began_us }) => {
                let report = Report::Spawned { id, pid: pid.as_raw().cast_unsigned(), began_us };
                if spawn.prompt {
                    return channel.send(&report);
                }
                self.unreported.add(id, report, Instant::now());
                Ok(())
            }
            Err((refusal, detail)) => {
                let detail = detail.chars().take(MAX_DETAIL_CHARS).collect();
                channel.send(&Report::Refused { id, refusal, detail })
            }
        }
    }

    fn spawn(&mut self, spawn: &Spawn, stdio: &Stdio) -> Result<Started, Refused> {
        let setup = &self.setup;
        let fresh = (!spawn.user.is_empty()).then(Databases::read);
        let plan = Plan::new(spawn, &setup.target, fresh.as_ref().unwrap_or(&setup.databases))?;
        give_to(stdio, plan.identity.uid);
        let (groups, inherited) = (&*plan.identity.groups, &setup.target.status);
        let foreign = plan.identity.gid != inherited.gid || *groups != inherited.groups;
        let child = Child {
            stdio: stdio.each().map(AsFd::as_fd),
            terminal: spawn.terminal.is_some(),
            cwd: &plan.cwd,
            umask: spawn.umask,
            oom_killer: setup.oom_killer,
            limits: &setup.limits,
            uid: plan.identity.uid,
            groups: foreign.then_some((plan.identity.gid, groups)),
            permitted: setup.permitted,
            inheritable: setup.inheritable,
            no_new_privs: setup.target.status.no_new_privs,
            environ: &plan.environ,
            arguments: &plan.arguments,
            attempts: &plan.attempts,
        };
        let started = match spawn.program {
            Program::Worker => clone::fork(&child, self.file_worker),
            Program::Argv(_) | Program::Shell(_) => clone::start(&mut self.stack, &child),
        };
        let started = started.map_err(|failure| refused(failure, &plan))?;
        let leader = started.pid;
        // The new command has the marker of an earlier one, which was killed while its start was unknown to its caller.
        // The kill in the background stops, since it would hit the new command; what the earlier one left stays.
        self.sweeps.retain(|sweep| !sweep.lingers(&spawn.exec_id));
        let command =
            Command { leader, exec_id: spawn.exec_id.clone(), on_terminal: spawn.terminal.is_some() };
        self.commands.insert(spawn.id, command);
        Ok(started)
    }

    /// Only processes that have not been reaped are signalled, so their pids cannot have been reused.
    fn signal(&self, id: u64, signal: u32, tree: bool) {
        let Some(command) = self.commands.get(&id) else {
            return;
        };
        let members = if tree {
            Marks::new(command.leader, &command.exec_id).members()
        } else {
            [command.leader.as_raw()].into()
        };
        sweep::signal(&members, signal.cast_signed());
    }

    fn sweep(&mut self, channel: &mut Channel) -> io::Result<()> {
        for (id, left) in sweep::round(&mut self.sweeps, Instant::now()) {
            if let Some((shell, signal)) = self.stopped.remove(&id) {
                self.signal(shell, signal, false);
                self.signal(shell, libc::SIGCONT.cast_unsigned(), false);
            }
            channel.send(&Report::Swept { id, left })?;
        }
        Ok(())
    }
}

impl Descriptors {
    /// The command's streams. A terminal is made here, so that it is one of the sandbox's.
    fn stdio(self, spawn: &Spawn) -> io::Result<Stdio> {
        match (self, spawn.terminal) {
            (Self::Pipes(pipes), _) => Ok(Stdio::Pipes(pipes)),
            (Self::Socket(_), None) => Err(io::ErrorKind::InvalidInput.into()),
            (Self::Socket(socket), Some(size)) => terminal::open(size, &socket).map(Stdio::Terminal),
        }
    }
}

impl Stdio {
    fn each(&self) -> [&OwnedFd; 3] {
        match self {
            Self::Pipes(pipes) => pipes.each_ref(),
            Self::Terminal(terminal) => [terminal; 3],
        }
    }
}

fn no_streams(err: io::Error) -> Refused {
    (Refusal::Internal, format!("the command's streams could not be made: {err}"))
}

/// A pipe belongs to the user that made it, here root. Unless its owner is changed, another user cannot open
/// `/dev/stdout` or `/dev/tty`. The null device is open to all users.
fn give_to(stdio: &Stdio, uid: u32) {
    let own = |fd: &OwnedFd| {
        let kind = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
        matches!(stdio, Stdio::Terminal(_))
            || fstat(fd).is_ok_and(|found| kind(found.st_mode) == SFlag::S_IFIFO)
    };
    for fd in stdio.each().into_iter().filter(|fd| uid != 0 && own(fd)) {
        // If the change fails, the streams themselves still work.
        let _ = fchown(fd, Some(Uid::from_raw(uid)), None);
    }
}

fn refused(failure: Failure, plan: &Plan) -> Refused {
    let Failure { stage, errno } = failure;
    let program = &plan.program;
    let reason = errno.desc();
    match (stage, errno) {
        (Stage::Exec, Errno::ENOENT | Errno::ENOTDIR)
            if plan.attempts.iter().any(|attempt| exists(plan, attempt)) =>
        {
            (Refusal::NotExecutable, format!("{program:?} exists, but its interpreter or loader does not"))
        }
        (Stage::Exec, Errno::E2BIG) => {
            (Refusal::TooLarge, plan.too_large("a quarter of the limit of its stack"))
        }
        (Stage::Exec, Errno::ENAMETOOLONG | Errno::ENOMEM) if plan.is_too_large_for_gvisor() => {
            (Refusal::TooLarge, plan.too_large("2 MiB of each"))
        }
        (Stage::Exec, Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG) => {
            (Refusal::CommandNotFound, format!("{program:?} was not found in the sandbox"))
        }
        (Stage::Clone | Stage::Exec, Errno::EAGAIN) => {
            (Refusal::PidsExhausted, "the sandbox's limit of processes is used up".to_owned())
        }
        (
            Stage::Exec,
            Errno::EACCES
            | Errno::EINVAL
            | Errno::EISDIR
            | Errno::ELIBBAD
            | Errno::ELOOP
            | Errno::ENOEXEC
            | Errno::EPERM
            | Errno::ETXTBSY,
        ) => (Refusal::NotExecutable, format!("{program:?} cannot be executed: {reason}")),
        (_, Errno::ETIMEDOUT) => (
            Refusal::NotExecutable,
            format!(
                "{program:?} could not be started ({stage:?}): a command holds its file or stops new processes"
            ),
        ),
        (_, Errno::ETIME) => (
            Refusal::NoTime,
            format!("{program:?} was not started: the node gave it no processor or disk time ({stage:?})"),
        ),
        (Stage::Cwd, _) => (
            Refusal::CwdNotFound,
            format!("the working directory {:?} cannot be entered: {reason}", plan.cwd),
        ),
        _ => (Refusal::Internal, format!("{program:?} could not be started ({stage:?}): {reason}")),
    }
}

fn exists(plan: &Plan, attempt: &clone::Attempt) -> bool {
    let path = |text: &CStr| Path::new(OsStr::from_bytes(text.to_bytes())).to_owned();
    path(&plan.cwd).join(path(&attempt.path)).exists()
}

/// Usage of the file systems as commands see them. An overlay of gVisor's is made for this container alone, and tells of
/// what is written in it, not of the image below; one of Linux tells of the whole disk that it is on.
fn disk() -> Disk {
    let in_memory_bytes = memory_mounts::file_bytes();
    let Ok(seen) = statvfs("/") else { return Disk { in_memory_bytes, ..Disk::default() } };
    let used = seen.blocks().saturating_sub(seen.blocks_free());
    let is_own = is_gvisor() && statfs("/").is_ok_and(|seen| seen.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
    Disk { used_bytes: used.saturating_mul(seen.fragment_size()), in_memory_bytes, is_own }
}
