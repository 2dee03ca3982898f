//! Builds the contract's messages from records. Pure.

use wire::agent::{ExecResult, ExecSummary, Output};

use crate::process::{Ended, Phase, Process, Stream};

/// The result of a command that has ended, with its output.
pub fn result(process: &Process, ended: &Ended, replayed: bool) -> ExecResult {
    ExecResult {
        stdout: Some(output(process, Stream::Stdout)),
        stderr: Some(output(process, Stream::Stderr)),
        ..result_without_data(process, ended, replayed)
    }
}

/// The same with counts instead of output, for a caller that has received the output already.
pub fn result_without_data(process: &Process, ended: &Ended, replayed: bool) -> ExecResult {
    let counts = |stream| {
        let ring = process.output(stream);
        let total_bytes = ring.total_bytes();
        Output { data: Vec::new(), total_bytes, truncated: total_bytes > ring.kept_bytes() as u64 }
    };
    ExecResult {
        exec_id: process.exec_id().to_owned(),
        end: ended.end.into(),
        exit_code: ended.exit_code,
        signal: ended.signal,
        stdout: Some(counts(Stream::Stdout)),
        stderr: Some(counts(Stream::Stderr)),
        spawn_us: ended.spawn_us,
        run_us: ended.run_us,
        replayed,
    }
}

fn output(process: &Process, stream: Stream) -> Output {
    let (data, total_bytes) = process.result_output(stream);
    Output { truncated: total_bytes > data.len() as u64, data, total_bytes }
}

/// One entry of a list. `oom_kills` have been in the sandbox so far.
pub fn summary(process: &Process, oom_kills: u64) -> ExecSummary {
    let ended = match process.phase() {
        Phase::Ended(ended) => Some(ended),
        _ => None,
    };
    ExecSummary {
        exec_id: process.exec_id().to_owned(),
        argv: process.shown.clone(),
        pid: process.pid(),
        started_at_ms: process.started_at_ms,
        running: process.is_running(),
        end: ended.map_or(0, |ended| ended.end.into()),
        exit_code: ended.map_or(0, |ended| ended.exit_code),
        stdout_bytes: process.output(Stream::Stdout).total_bytes(),
        stderr_bytes: process.output(Stream::Stderr).total_bytes(),
        ended_at_ms: ended.map_or(0, |ended| process.started_at_ms + (ended.spawn_us + ended.run_us) / 1000),
        oom_kills: process.oom_kills_since_start(oom_kills),
    }
}
