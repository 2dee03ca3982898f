//! A command as everyone sees it: what it is, its output, whether it runs, and what decides when it ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tokio::sync::Mutex as AsyncMutex;
use wire::agent::End;
use wire::{Code, Problem};

use super::readers::Readers;
use super::small_watch::{SmallWatch, lock};
use super::stdin::Stdin;
use super::stream::Stream;
use super::terminal::Terminal;
use crate::request::{Call, Command};
use crate::ring::{Budget, Ring};
use crate::spawner::frame::{Program, Size};

/// Bytes of a long command line that are kept for lists.
const MAX_SHOWN_BYTES: usize = 512;

/// Why the sidecar killed a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its timeout passed.
    Deadline,
    /// A caller cancelled it, or no caller waits for it any more.
    Cancelled,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Why.
    pub end: End,
    /// Its exit code; 0 unless it exited.
    pub exit_code: i32,
    /// The signal; 0 when it exited.
    pub signal: u32,
    /// Time from reading the request until the process ran.
    pub spawn_us: u64,
    /// Time from when the process ran until its end was collected.
    pub run_us: u64,
}

/// The state of a command.
#[derive(Debug, Clone)]
pub enum Phase {
    /// Ordered, but not running yet.
    Starting,
    /// It runs.
    Running {
        /// Time from reading the request until the process ran.
        spawn_us: u64,
    },
    /// It ended.
    Ended(Ended),
    /// It never ran, or its end cannot be known.
    Failed(Arc<Problem>),
}

/// A command and its output.
#[derive(Debug)]
pub struct Process {
    /// A hash of its parameters.
    pub fingerprint: u64,
    /// Its command line, cut to a bounded length.
    pub shown: Vec<String>,
    /// Unix time of the request.
    pub started_at_ms: u64,
    /// The spawner's number for it.
    pub id: u64,
    exec_id: OnceLock<String>,
    /// Its standard input.
    pub stdin: AsyncMutex<Stdin>,
    pub(super) pid: AtomicU64,
    /// OOM kills in the sandbox before it started.
    pub(super) ooms_before: AtomicU64,
    pub(super) result_bytes: [usize; 2],
    pub(super) outputs: [Mutex<Ring>; 2],
    /// The readers that the output waits for; none: it does not wait.
    pub(super) readers: Option<Readers>,
    /// Present while the command runs on a terminal.
    pub(super) terminal: Mutex<Option<Terminal>>,
    /// Also changes with every output.
    pub(super) activity: SmallWatch<()>,
    pub(super) life: SmallWatch<Life>,
}

/// What decides when it ends.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) phase: Phase,
    /// Whether it is cancelled when no caller waits for it.
    pub(super) needs_waiters: bool,
    pub(super) waiters: usize,
    pub(super) stop: Option<Cause>,
}

/// A caller that waits for a process, until this is dropped.
#[derive(Debug)]
pub struct Waiter {
    process: Arc<Process>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.process.life.change(|life| life.waiters -= 1);
    }
}

impl Process {
    /// A process that has not started, with output memory from `budget`. `id` is the spawner's number, `started_at_ms`
    /// Unix time.
    pub fn new(command: &Command, call: Call, budget: &Arc<Budget>, id: u64, started_at_ms: u64) -> Self {
        let ring = |limit_bytes| Mutex::new(Ring::new(limit_bytes, command.keep, Arc::clone(budget)));
        Self {
            exec_id: if call == Call::Ahead { OnceLock::new() } else { command.exec_id.clone().into() },
            fingerprint: command.fingerprint(),
            shown: shown(&command.program),
            started_at_ms,
            id,
            stdin: AsyncMutex::new(Stdin::new(command.stdin_open)),
            pid: AtomicU64::new(0),
            ooms_before: AtomicU64::new(0),
            result_bytes: command.max_output_bytes,
            outputs: command.kept_output_bytes().map(ring),
            readers: command.output_waits.then(Readers::new),
            terminal: Mutex::default(),
            activity: SmallWatch::new(()),
            life: SmallWatch::new(Life {
                phase: Phase::Starting,
                needs_waiters: match call {
                    Call::Exec => true,
                    Call::Start => command.orphan_grace.is_some(),
                    Call::Ahead => false,
                },
                waiters: 0,
                stop: None,
            }),
        }
    }

    /// The id that its caller gave it; empty while it waits for one.
    pub fn exec_id(&self) -> &str {
        self.exec_id.get().map_or("", String::as_str)
    }

    /// Gives a process that was started ahead to a caller: from now on it needs one that is attached.
    pub fn give(&self, exec_id: &str) {
        let _only_once = self.exec_id.set(exec_id.to_owned());
        self.life.change(|life| life.needs_waiters = true);
    }

    /// Its process id in the sandbox; 0 before it runs.
    pub fn pid(&self) -> u32 {
        u32::try_from(self.pid.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// OOM kills in the sandbox since its start, of `so_far`, while it runs.
    pub fn oom_kills_since_start(&self, so_far: u64) -> u64 {
        match self.phase() {
            Phase::Running { .. } => so_far.saturating_sub(self.ooms_before.load(Ordering::Relaxed)),
            _ => 0,
        }
    }

    /// Its state.
    pub fn phase(&self) -> Phase {
        self.life.look().phase.clone()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        matches!(self.life.look().phase, Phase::Starting | Phase::Running { .. })
    }

    /// The buffer of one output stream.
    pub fn output(&self, stream: Stream) -> MutexGuard<'_, Ring> {
        lock(&self.outputs[stream as usize])
    }

    /// The part of a stream that the result holds, and how many bytes the stream had in all. Cost: one copy of what is
    /// kept.
    pub fn result_output(&self, stream: Stream) -> (Vec<u8>, u64) {
        let ring = self.output(stream);
        let mut kept = ring.kept();
        // Only a ring that keeps the last bytes may hold more than the result does.
        let more = kept.len().saturating_sub(self.result_bytes[stream as usize]);
        kept.drain(..more);
        (kept, ring.total_bytes())
    }

    /// How many bytes of a stream may be read from the command at this moment, at least 1. Waits if the output waits
    /// for its readers.
    pub(super) async fn room(&self, stream: Stream) -> usize {
        match &self.readers {
            Some(readers) => readers.room(stream, &self.outputs[stream as usize]).await,
            None => usize::MAX,
        }
    }

    /// Sets the size of its terminal's window.
    ///
    /// # Errors
    /// `invalid_argument`: it has none. `conflict`: the command has closed it.
    pub fn resize(&self, size: Size) -> Result<(), Problem> {
        let Some(terminal) = lock(&self.terminal).clone() else {
            let detail = format!("exec {} does not run on a terminal", self.exec_id());
            return Err(Problem::new(Code::InvalidArgument, detail).with("field", "exec_id"));
        };
        let closed = |err| Problem::new(Code::Conflict, format!("the terminal cannot be resized: {err}"));
        terminal.resize(size).map_err(closed)
    }

    /// Sends a signal through the terminal, as its key would, to the foreground processes. False: it has no terminal,
    /// or the signal has no key.
    pub fn press(&self, signal: u32) -> bool {
        lock(&self.terminal).as_ref().is_some_and(|terminal| terminal.signal(signal))
    }

    /// Bytes that its output holds in memory.
    pub fn kept_bytes(&self) -> usize {
        self.output(Stream::Stdout).kept_bytes() + self.output(Stream::Stderr).kept_bytes()
    }

    /// Completes at the first output or change of phase after this call.
    pub fn activity(&self) -> impl Future<Output = ()> + Send {
        self.activity.changed()
    }

    /// Counts the caller as waiting.
    pub fn waiter(self: &Arc<Self>) -> Waiter {
        self.life.change(|life| life.waiters += 1);
        Waiter { process: Arc::clone(self) }
    }

    /// The same for a caller that wants its result and nothing else: from then on the command ends when no caller waits
    /// for it any more, even if it was started without a caller that waits.
    pub fn owner(self: &Arc<Self>) -> Waiter {
        self.life.change(|life| (life.needs_waiters, life.waiters) = (true, life.waiters + 1));
        Waiter { process: Arc::clone(self) }
    }

    /// Requests its end. The first cause stays.
    pub fn stop(&self, cause: Cause) {
        self.life.change(|life| _ = life.stop.get_or_insert(cause));
    }

    /// Waits until it runs; returns how long that took.
    ///
    /// # Errors
    /// Why it does not run.
    pub async fn started(&self) -> Result<u64, Problem> {
        let begun = |life: &Life| match &life.phase {
            Phase::Running { spawn_us } | Phase::Ended(Ended { spawn_us, .. }) => Some(Ok(*spawn_us)),
            Phase::Failed(problem) => Some(Err((**problem).clone())),
            Phase::Starting => None,
        };
        self.life.until(begun).await
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// Why it never ran, or why its end is not known.
    pub async fn ended(&self) -> Result<Ended, Problem> {
        let over = |life: &Life| match &life.phase {
            Phase::Ended(ended) => Some(Ok(*ended)),
            Phase::Failed(problem) => Some(Err((**problem).clone())),
            Phase::Starting | Phase::Running { .. } => None,
        };
        self.life.until(over).await
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.life.change(|life| life.phase = phase);
        self.activity.change(|()| ());
    }
}

fn shown(program: &Program) -> Vec<String> {
    let arguments = match program {
        Program::Argv(argv) => argv.clone(),
        // Which shell the image has is the spawner's to see.
        Program::Shell(text) => vec![text.clone()],
        Program::Worker => Vec::new(),
    };
    let mut left = MAX_SHOWN_BYTES;
    let mut cut = |argument: Vec<u8>| {
        let taken = argument.len().min(left);
        left -= taken;
        String::from_utf8_lossy(&argument[..taken]).into_owned()
    };
    let enough = arguments.len().min(MAX_SHOWN_BYTES);
    arguments.into_iter().take(enough).map(&mut cut).collect()
}

#[cfg(test)]
mod tests {
    use wire::agent::ExecRequest;

    use super::*;
    use crate::request::DEFAULT_OUTPUT_BYTES;

    fn process(change: impl FnOnce(&mut ExecRequest)) -> Process {
        let mut request = ExecRequest { exec_id: "x".into(), command: "x".into(), ..Default::default() };
        change(&mut request);
        let command = Command::new(request, Call::Start).unwrap();
        Process::new(&command, Call::Start, &Budget::new(1 << 30).into(), 0, 0)
    }

    #[test]
    fn an_output_that_waits_keeps_what_is_under_way_and_tells_what_was_asked() {
        let process = process(|r| (r.max_output_bytes, r.output_waits) = (10, true));
        let mut ring = process.output(Stream::Stdout);
        while ring.total_bytes() < DEFAULT_OUTPUT_BYTES as u64 {
            ring.fill(usize::MAX, |space| Ok::<_, ()>(space.len())).unwrap();
        }
        let (total, kept) = (ring.total_bytes(), ring.kept_bytes());
        drop(ring);
        let (result_output, result_total) = process.result_output(Stream::Stdout);
        assert_eq!((kept, result_output.len(), result_total), (DEFAULT_OUTPUT_BYTES, 10, total));
    }

    /// Hundreds of finished processes are kept.
    #[test]
    fn a_process_is_small() {
        assert!(size_of::<Process>() <= 704, "{} bytes", size_of::<Process>());
    }

    #[test]
    fn a_long_command_line_is_cut() {
        let argv = vec![vec![b'x'; 400], vec![b'y'; 400], b"z".to_vec()];
        let lengths: Vec<usize> = shown(&Program::Argv(argv)).iter().map(String::len).collect();
        assert_eq!(lengths, [400, 112, 0]);
    }

    #[test]
    fn a_text_for_a_shell_is_shown_as_it_was_given() {
        assert_eq!(shown(&Program::Shell(b"echo $0".to_vec())), ["echo $0"]);
    }
}
