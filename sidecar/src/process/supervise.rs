//! Supervises a command: its start, its streams, its end, and the kills by deadline, cancellation and orphan grace.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use wire::agent::End;
use wire::{Code, Problem};

use super::pipe_end::PipeEnd;
use super::small_watch::{SmallWatch, lock};
use super::state::{Cause, Ended, Life, Phase, Process};
use super::stream::Stream;
use super::streams::{Prepared, Streams, pump};
use crate::log;
use crate::oom::{self, OomCounter};
use crate::problem::arguments_too_large;
use crate::request::{Command, Defaults};
use crate::ring::Budget;
use crate::spawner::frame::{Ending, Order, Program, Refusal, Report, Spawn};
use crate::spawner::link::{Link, Subscription, lost};
use crate::sys;

const SIGKILL: u32 = libc::SIGKILL.cast_unsigned();
/// Longer than the spawner takes to report a kill (2 s) that it begins after a held start (3 s). After it, the rest of
/// the kill is left to the spawner.
const KILL_PATIENCE: Duration = Duration::from_secs(8);

/// What supervising needs besides the command.
#[derive(Debug)]
pub struct Context {
    /// Orders to the spawner.
    pub link: Link,
    /// OOM kills in the control group that commands run in.
    pub oom: OomCounter,
    /// Memory for the output of commands.
    pub output: Arc<Budget>,
    /// How long an exec lives on after its last waiter has left; a command that was started may name its own.
    pub orphan_grace: Duration,
}

/// A command that is to be started.
#[derive(Debug)]
pub struct Start {
    /// What to run.
    pub command: Command,
    /// The defaults that the claim set.
    pub defaults: Defaults,
    /// When its request was read.
    pub received: Instant,
    /// The spawner's reports about it.
    pub subscription: Subscription,
}

/// Runs a command to its end, whether or not a caller waits, and leaves the outcome in `process`.
pub async fn supervise(process: Arc<Process>, start: Start, context: Arc<Context>) {
    let phase = match run(&process, start, &context).await {
        Ok(ended) => Phase::Ended(ended),
        Err(problem) => Phase::Failed(Arc::new(problem)),
    };
    process.output(Stream::Stdout).shrink();
    process.output(Stream::Stderr).shrink();
    if let Some(readers) = &process.readers {
        readers.clear();
    }
    lock(&process.terminal).take();
    process.enter(phase);
    // Last, because a call may hold the lock while it writes to a daemon that does not read, until it sees the end.
    process.stdin.lock().await.close();
}

async fn run(process: &Process, start: Start, context: &Context) -> Result<Ended, Problem> {
    let Start { mut command, defaults, received, mut subscription } = start;
    let ooms_before = context.oom.read();
    process.ooms_before.store(ooms_before, Ordering::Relaxed);
    let (prepared, theirs) = prepare(&command).map_err(|err| out_of_descriptors(&err))?;
    let started = !process.life.look().needs_waiters || command.orphan_grace.is_some();
    let prompt = started || command.stdin_open || !command.stdin.is_empty();
    context.link.send(&order(&mut command, defaults, subscription.id, prompt), theirs).await?;
    let (pid, age) = spawned(&mut subscription).await?;
    let now = Instant::now();
    let runs_since = now.checked_sub(age).unwrap_or(now).max(received);
    let spawn_us = micros(runs_since - received);
    process.pid.store(pid.into(), Ordering::Relaxed);
    let mut streams = match prepared.opened() {
        Ok(streams) => streams,
        Err(err) => {
            kill(process, context, &mut subscription).await?;
            return Err(out_of_descriptors(&err));
        }
    };
    lock(&process.terminal).clone_from(&streams.terminal);
    process.enter(Phase::Running { spawn_us });

    let traffic = traffic(process, streams.stdin.take(), &streams, &command.stdin);
    let limit = command.timeout.map(|limit| limit.saturating_sub(age));
    let mut stopped = pin!(stopped(process, limit, command.orphan_grace.unwrap_or(context.orphan_grace)));
    let (ending, cause) = match until_end(traffic, &mut stopped, &mut subscription).await? {
        Outcome::Ended(ending) => (ending, None),
        Outcome::Stopped(cause) => (kill(process, context, &mut subscription).await?, Some(cause)),
    };
    let run_us = micros(runs_since.elapsed());
    // Not `stopped`: a command that has ended cannot time out.
    let unwanted = process.life.until(|life| life.stop);
    last_words(&streams, process, cause.is_none(), unwanted).await;
    let oom_killed = oom::looks_killed(ending) && context.oom.read() > ooms_before;
    let (end, exit_code, signal) = classify(ending, cause, oom_killed);
    Ok(Ended { end, exit_code, signal, spawn_us, run_us })
}

/// Reads the output that a command has left when it ended; with `waits`, at the pace of its readers, until a caller
/// wants it stopped.
async fn last_words(streams: &Streams, process: &Process, waits: bool, unwanted: impl Future) {
    if waits {
        tokio::select! {
            biased;
            _ = unwanted => {}
            () = streams.drain(process, true) => return,
        }
    }
    streams.drain(process, false).await;
}

fn prepare(command: &Command) -> std::io::Result<(Prepared, Vec<OwnedFd>)> {
    match command.terminal {
        Some(_) => Prepared::terminal(),
        None => Prepared::pipes(command.stdin_open || !command.stdin.is_empty(), command.merge),
    }
}

/// Moves data in all three directions until all streams are at their end.
async fn traffic(process: &Process, stdin: Option<Arc<PipeEnd>>, streams: &Streams, input: &[u8]) {
    let terminal = streams.terminal.clone();
    let stderr = async {
        if let Some(stderr) = &streams.stderr {
            pump(stderr, process, Stream::Stderr).await;
        }
    };
    tokio::join!(pump(&streams.stdout, process, Stream::Stdout), stderr, async {
        process.stdin.lock().await.begin(stdin, terminal, input).await
    },);
}

/// Moves out of the command what only its start needs, since arguments and environment variables may be megabytes.
fn order(command: &mut Command, defaults: Defaults, id: u64, prompt: bool) -> Order {
    let (env, cwd, user) = command.take_bound(defaults);
    let program = std::mem::replace(&mut command.program, Program::Worker);
    let (exec_id, umask, terminal) = (command.exec_id.clone(), command.umask, command.terminal);
    Order::Spawn(Spawn { id, exec_id, program, cwd, user, umask, terminal, env, prompt })
}

/// Waits for the start; returns the process id, and for how long the process has run.
pub(crate) async fn spawned(subscription: &mut Subscription) -> Result<(u32, Duration), Problem> {
    match subscription.reports.recv().await {
        Some(Report::Spawned { pid, began_us, .. }) => {
            Ok((pid, Duration::from_micros(sys::monotonic_us().saturating_sub(began_us))))
        }
        Some(Report::Refused { refusal, detail, .. }) => Err(refused(refusal, &detail)),
        Some(other) => {
            Err(Problem::new(Code::Internal, format!("the spawner answered a start with {other:?}")))
        }
        None => Err(lost()),
    }
}

/// Maps a refusal of the spawner to a problem for the caller.
fn refused(refusal: Refusal, detail: &str) -> Problem {
    let invalid = |reason| Problem::new(Code::InvalidArgument, detail).with("reason", reason);
    match refusal {
        Refusal::CommandNotFound => invalid("command_not_found"),
        Refusal::NotExecutable => invalid("not_executable"),
        Refusal::CwdNotFound => invalid("cwd_not_found"),
        Refusal::UserNotFound => invalid("user_not_found"),
        Refusal::TooLarge => arguments_too_large(detail),
        Refusal::PidsExhausted => Problem::new(Code::PidsExhausted, detail),
        Refusal::NoTime => Problem::new(Code::UpstreamTimeout, detail),
        Refusal::Internal => Problem::new(Code::Internal, detail),
    }
}

fn out_of_descriptors(err: &std::io::Error) -> Problem {
    Problem::new(Code::RateLimited, format!("no descriptors are left for another command's streams: {err}"))
}

enum Outcome {
    Ended(Ending),
    Stopped(Cause),
}

/// Moves data until the command's process ends, even if other processes still hold its pipes, or until it is to be
/// killed.
async fn until_end(
    traffic: impl Future<Output = ()>,
    mut stopped: impl Future<Output = Cause> + Unpin,
    subscription: &mut Subscription,
) -> Result<Outcome, Problem> {
    let mut traffic = pin!(traffic);
    let mut flows = true;
    loop {
        tokio::select! {
            biased;
            report = subscription.reports.recv() => match report {
                Some(Report::Ended { ending, .. }) => return Ok(Outcome::Ended(ending)),
                Some(_) => {}
                None => return Err(lost()),
            },
            cause = &mut stopped => return Ok(Outcome::Stopped(cause)),
            () = &mut traffic, if flows => flows = false,
        }
    }
}

/// Completes when the command is to be killed.
async fn stopped(process: &Process, limit: Option<Duration>, orphan_grace: Duration) -> Cause {
    let deadline = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        cause = process.life.until(|life| life.stop) => cause,
        () = deadline => Cause::Deadline,
        () = orphaned(&process.life, orphan_grace) => Cause::Cancelled,
    }
}

/// Completes when the command needs waiters and has had none for all of `grace`.
async fn orphaned(life: &SmallWatch<Life>, grace: Duration) {
    let missed = |wanted: bool| {
        life.until(move |life| ((life.needs_waiters && life.waiters == 0) == wanted).then_some(()))
    };
    loop {
        missed(true).await;
        if timeout(grace, missed(false)).await.is_err() {
            return;
        }
    }
}

/// Kills the whole process tree and waits until it is gone. A process that cannot be killed in time (stuck in the
/// kernel) is left until the sandbox ends.
async fn kill(
    process: &Process,
    context: &Context,
    subscription: &mut Subscription,
) -> Result<Ending, Problem> {
    context.link.send(&Order::Kill { id: subscription.id }, Vec::new()).await?;
    let mut ending = None;
    let gone = async {
        let mut swept = false;
        while ending.is_none() || !swept {
            match subscription.reports.recv().await {
                Some(Report::Ended { ending: found, .. }) => ending = Some(found),
                Some(Report::Swept { left, .. }) => {
                    swept = true;
                    if left > 0 {
                        log::event("kill_incomplete", &[("exec_id", &process.exec_id()), ("left", &left)]);
                    }
                }
                Some(_) => {}
                None => return Err(lost()),
            }
        }
        Ok(())
    };
    match timeout(KILL_PATIENCE, gone).await {
        Ok(done) => done?,
        Err(_) => log::event("kill_timeout", &[("exec_id", &process.exec_id())]),
    }
    Ok(ending.unwrap_or(Ending::Signalled(SIGKILL)))
}

/// Maps an ending to end, exit code and signal. A kill by the sidecar that was under way is the reason even if the
/// process exited at the same moment (a shell does, when its child is killed first).
fn classify(ending: Ending, cause: Option<Cause>, oom_killed: bool) -> (End, i32, u32) {
    let signal = match ending {
        Ending::Signalled(signal) => signal,
        Ending::Exited(_) => SIGKILL,
    };
    match (cause, ending) {
        (Some(Cause::Deadline), _) => (End::Deadline, 0, signal),
        (Some(Cause::Cancelled), _) => (End::Cancelled, 0, signal),
        (None, _) if oom_killed => (End::OomKilled, 0, SIGKILL),
        (None, Ending::Signalled(signal)) => (End::Signalled, 0, signal),
        (None, Ending::Exited(code)) => (End::Exited, code, 0),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use wire::agent::ExecRequest;

    use super::super::streams::Output;
    use super::*;
    use crate::request::Call;

    #[test]
    fn the_reason_of_an_end_is_ours_before_the_kernels_before_the_commands() {
        let (exited, killed) = (Ending::Exited(3), Ending::Signalled(9));
        assert_eq!(classify(exited, None, false), (End::Exited, 3, 0));
        assert_eq!(classify(Ending::Signalled(15), None, false), (End::Signalled, 0, 15));
        assert_eq!(classify(Ending::Exited(137), None, true), (End::OomKilled, 0, 9));
        assert_eq!(classify(killed, Some(Cause::Deadline), true), (End::Deadline, 0, 9));
        assert_eq!(classify(exited, Some(Cause::Cancelled), false), (End::Cancelled, 0, 9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_is_orphaned_only_after_an_unbroken_grace() {
        let life =
            SmallWatch::new(Life { phase: Phase::Starting, needs_waiters: false, waiters: 0, stop: None });
        let waiters = |count| life.change(|life| life.waiters = count);
        let grace = Duration::from_secs(30);
        let mut orphaned = pin!(orphaned(&life, grace));
        assert!(timeout(grace * 10, &mut orphaned).await.is_err(), "it needs no waiter");
        life.change(|life| (life.needs_waiters, life.waiters) = (true, 1));
        assert!(timeout(grace * 10, &mut orphaned).await.is_err());
        waiters(0);
        assert!(timeout(grace - Duration::from_secs(1), &mut orphaned).await.is_err());
        waiters(1);
        assert!(timeout(grace * 10, &mut orphaned).await.is_err());
        waiters(0);
        let lost = tokio::time::Instant::now();
        orphaned.await;
        assert_eq!(lost.elapsed(), grace);
    }

    #[tokio::test(start_paused = true)]
    async fn last_words_wait_for_their_reader_until_somebody_wants_an_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[b'x'; 1000]).unwrap();
        let stdout = Output::Pipe(reader.into());
        let streams = Streams { stdin: None, stdout, stderr: None, terminal: None };
        drop(writer);
        let request = ExecRequest {
            exec_id: "x".into(),
            command: "x".into(),
            output_waits: true,
            ..Default::default()
        };
        let command = Command::new(request, Call::Start).unwrap();
        let process = Process::new(&command, Call::Start, &Budget::new(0).into(), 0, 0);
        let full = |space: &mut [u8]| Ok::<_, ()>(space.len());
        while process.output(Stream::Stdout).room(0, 0) > 0 {
            process.output(Stream::Stdout).fill(usize::MAX, full).unwrap();
        }
        let before = process.output(Stream::Stdout).total_bytes();
        let (began, cancelled) = (tokio::time::Instant::now(), Duration::from_secs(1));
        last_words(&streams, &process, true, sleep(cancelled)).await;
        assert_eq!(began.elapsed(), cancelled);
        assert_eq!(process.output(Stream::Stdout).total_bytes(), before + 1000);
    }

    #[test]
    fn every_refusal_of_the_caller_has_its_reason() {
        for (refusal, reason) in [
            (Refusal::CommandNotFound, "command_not_found"),
            (Refusal::NotExecutable, "not_executable"),
            (Refusal::CwdNotFound, "cwd_not_found"),
            (Refusal::UserNotFound, "user_not_found"),
            (Refusal::TooLarge, "arguments_too_large"),
        ] {
            let problem = refused(refusal, "d");
            assert_eq!((problem.code, &*problem.details["reason"]), (Code::InvalidArgument, reason));
        }
        assert_eq!(refused(Refusal::PidsExhausted, "d").code, Code::PidsExhausted);
        assert_eq!(refused(Refusal::NoTime, "d").code, Code::UpstreamTimeout);
    }
}
