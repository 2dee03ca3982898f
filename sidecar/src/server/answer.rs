//! Builds the contract's messages from records and problems. Pure.

use tonic::{Code as GrpcCode, Status};
use wire::agent::{ExecResult, ExecSummary, Output};
use wire::{Code, Problem};

use crate::process::{Ended, Phase, Process, Stream};

/// How much of a detail is sent: it may repeat a value that the caller made very long, and gRPC headers are limited.
const MAX_DETAIL_CHARS: usize = 1024;

/// A problem as a gRPC status that carries it in its details.
pub fn status(problem: &Problem) -> Status {
    let detail: String = problem.detail.chars().take(MAX_DETAIL_CHARS).collect();
    let carried = Problem { detail: detail.clone(), ..problem.clone() };
    Status::with_details(grpc_code(problem.code), detail, carried.encode().into())
}

fn grpc_code(code: Code) -> GrpcCode {
    match code.grpc() {
        "INVALID_ARGUMENT" => GrpcCode::InvalidArgument,
        "UNAUTHENTICATED" => GrpcCode::Unauthenticated,
        "PERMISSION_DENIED" => GrpcCode::PermissionDenied,
        "NOT_FOUND" => GrpcCode::NotFound,
        "ALREADY_EXISTS" => GrpcCode::AlreadyExists,
        "OUT_OF_RANGE" => GrpcCode::OutOfRange,
        "FAILED_PRECONDITION" => GrpcCode::FailedPrecondition,
        "UNIMPLEMENTED" => GrpcCode::Unimplemented,
        "RESOURCE_EXHAUSTED" => GrpcCode::ResourceExhausted,
        "ABORTED" => GrpcCode::Aborted,
        "UNAVAILABLE" => GrpcCode::Unavailable,
        "DEADLINE_EXCEEDED" => GrpcCode::DeadlineExceeded,
        _ => GrpcCode::Internal,
    }
}

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
        exec_id: process.exec_id.clone(),
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
    let (data, total_bytes) = process.told(stream);
    Output { truncated: total_bytes > data.len() as u64, data, total_bytes }
}

/// One entry of a list.
pub fn summary(process: &Process) -> ExecSummary {
    let ended = match process.phase() {
        Phase::Ended(ended) => Some(ended),
        _ => None,
    };
    ExecSummary {
        exec_id: process.exec_id.clone(),
        argv: process.shown.clone(),
        pid: process.pid(),
        started_at_ms: process.started_at_ms,
        running: process.is_running(),
        end: ended.map_or(0, |ended| ended.end.into()),
        exit_code: ended.map_or(0, |ended| ended.exit_code),
        stdout_bytes: process.output(Stream::Stdout).total_bytes(),
        stderr_bytes: process.output(Stream::Stderr).total_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status_and_travels_in_the_details() {
        for code in Code::ALL {
            let problem = Problem::new(code, "detail");
            let status = status(&problem);
            let name = format!("{:?}", status.code());
            assert_eq!(name.to_uppercase(), code.grpc().replace('_', ""), "{}", code.name());
            assert_eq!(Problem::decode(status.details()), Some(problem));
        }
    }

    #[test]
    fn a_long_detail_is_cut() {
        let status = status(&Problem::new(Code::InvalidArgument, "ä".repeat(1 << 20)));
        assert!(status.details().len() < 4096 && status.message().len() < 4096);
    }
}
