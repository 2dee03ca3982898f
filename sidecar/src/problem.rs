//! Problems as several parts build and send them. Pure.

use tonic::{Code as GrpcCode, Status};
use wire::{Code, Problem};

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

/// The problem for arguments and variables that no kernel takes.
pub fn arguments_too_large(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidArgument, detail).with("reason", "arguments_too_large")
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
