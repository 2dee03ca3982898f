use std::error::Error;

use tonic::{Code as GrpcCode, Status};
use wire::{Code, Problem};

use super::channel::SendFailed;

/// What a failed gRPC call means.
#[derive(Debug)]
pub(crate) enum Loss {
    /// The sidecar answered with this problem.
    Answered(Problem),
    /// The sidecar could not be reached: the call did not start.
    Unreachable(String),
    /// The connection broke: the call may have started.
    Broken(String),
}

/// Interprets a failed call. A status with a source was made on this side, by the transport; one without came from the
/// sidecar.
pub(crate) fn of(status: &Status) -> Loss {
    if let Some(problem) = Problem::decode(status.details()).filter(|_| !status.details().is_empty()) {
        return Loss::Answered(problem);
    }
    let mut source = status.source();
    let broken = source.is_some();
    while let Some(error) = source {
        match error.downcast_ref() {
            Some(SendFailed::Unreachable(unreachable)) => return Loss::Unreachable(unreachable.to_string()),
            Some(SendFailed::Encoding(status)) => {
                return Loss::Answered(Problem::new(Code::PayloadTooLarge, status.message()));
            }
            Some(SendFailed::Lost(_)) | None => {}
        }
        source = error.source();
    }
    if broken || status.code() == GrpcCode::Cancelled {
        return Loss::Broken(deepest(status));
    }
    let code = if status.code() == GrpcCode::Unimplemented { Code::Unsupported } else { Code::Internal };
    let detail = format!("the sidecar answered {:?} without a problem: {}", status.code(), status.message());
    Loss::Answered(Problem::new(code, detail))
}

/// The innermost cause: the outer ones only say that there is one.
fn deepest(status: &Status) -> String {
    let mut error: &dyn Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_in_the_details_is_that_problem() {
        let problem = Problem::new(Code::Conflict, "exec_id e-1 was used").with("exec_id", "e-1");
        let status = Status::with_details(GrpcCode::AlreadyExists, "", problem.encode().into());
        assert!(matches!(of(&status), Loss::Answered(read) if read == problem));
    }

    #[test]
    fn a_status_without_a_problem_is_ours_to_blame() {
        for (status, code) in [
            (Status::unimplemented("no"), Code::Unsupported),
            (Status::internal("oops"), Code::Internal),
            (Status::with_details(GrpcCode::Internal, "", vec![0xff].into()), Code::Internal),
        ] {
            assert!(matches!(of(&status), Loss::Answered(problem) if problem.code == code), "{status:?}");
        }
    }
}
