//! Maps errors of the kernel to problems of the contract.

use std::io;

use nix::errno::Errno;
use wire::{Code, Problem};

/// How much of a path a message shows: a path may be very long, and gRPC headers are limited.
const MAX_SHOWN_CHARS: usize = 512;

/// Why a file worker stops before its operation is done.
#[derive(Debug)]
pub(super) enum Stop {
    /// The caller gets this problem.
    Problem(Problem),
    /// The caller is gone; the worker only cleans up.
    Abandoned,
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Adds the path that a failed system call was about.
pub(super) trait At<T> {
    fn at(self, path: &[u8]) -> Result<T, Stop>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, path: &[u8]) -> Result<T, Stop> {
        self.map_err(|errno| Stop::Problem(problem(errno, path)))
    }
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &[u8]) -> Result<T, Stop> {
        self.map_err(|err| match err.raw_os_error() {
            Some(errno) => Stop::Problem(problem(Errno::from_raw(errno), path)),
            None => Stop::Problem(
                Problem::new(Code::Internal, format!("{}: {err}", shown(path))).with("path", shown(path)),
            ),
        })
    }
}

/// A path as text for people, cut to a bounded length.
pub(super) fn shown(path: &[u8]) -> String {
    let prefix = &path[..path.len().min(4 * MAX_SHOWN_CHARS)];
    String::from_utf8_lossy(prefix).chars().take(MAX_SHOWN_CHARS).collect()
}

/// A refusal by the platform, with path and reason.
pub(super) fn refusal(code: Code, path: &[u8], reason: &str, sentence: &str) -> Problem {
    let path = shown(path);
    Problem::new(code, format!("{path:?} {sentence}")).with("path", path).with("reason", reason)
}

/// A refusal by the kernel.
pub(super) fn problem(errno: Errno, path: &[u8]) -> Problem {
    let (code, reason) = meaning(errno);
    let sentence = match errno {
        Errno::ENOENT => "does not exist in the sandbox".to_owned(),
        Errno::EISDIR => "is a directory".to_owned(),
        Errno::ENOTDIR => "is not a directory, or a part of it is not".to_owned(),
        Errno::EEXIST => "exists already".to_owned(),
        Errno::ENOTEMPTY => "is a directory that is not empty".to_owned(),
        Errno::EBUSY => "is in use, or something is mounted on it".to_owned(),
        Errno::ETXTBSY => "is being executed".to_owned(),
        other => format!("cannot be used: {}", other.desc()),
    };
    refusal(code, path, reason, &sentence)
}

fn meaning(errno: Errno) -> (Code, &'static str) {
    match errno {
        Errno::ENOENT | Errno::ESRCH => (Code::FileNotFound, "missing"),
        Errno::EISDIR => (Code::InvalidArgument, "is_directory"),
        Errno::ENOTDIR => (Code::InvalidArgument, "not_directory"),
        Errno::ENAMETOOLONG => (Code::InvalidArgument, "name_too_long"),
        Errno::ELOOP => (Code::InvalidArgument, "symlink_loop"),
        Errno::ENXIO | Errno::ENODEV => (Code::InvalidArgument, "not_regular"),
        Errno::EAGAIN => (Code::InvalidArgument, "would_wait"),
        Errno::EINVAL | Errno::EILSEQ | Errno::EMLINK => (Code::InvalidArgument, "invalid_path"),
        Errno::EACCES | Errno::EPERM => (Code::PermissionDenied, "no_permission"),
        Errno::EROFS => (Code::PermissionDenied, "read_only"),
        Errno::EEXIST => (Code::Conflict, "exists"),
        Errno::ENOTEMPTY => (Code::Conflict, "not_empty"),
        Errno::EBUSY => (Code::Conflict, "busy"),
        Errno::ETXTBSY => (Code::Conflict, "executed"),
        Errno::ENOSPC => (Code::NoSpace, "disk_full"),
        Errno::EDQUOT => (Code::NoSpace, "quota"),
        Errno::EFBIG => (Code::NoSpace, "file_too_large"),
        Errno::EMFILE | Errno::ENFILE => (Code::NoSpace, "descriptors"),
        Errno::ENOMEM => (Code::NoSpace, "memory"),
        Errno::EOPNOTSUPP | Errno::ENOSYS => (Code::Unsupported, "file_system"),
        _ => (Code::Internal, "input_output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_path_and_reason() {
        let found = problem(Errno::ENOSPC, b"/tmp/\xffx");
        assert_eq!((found.code, &*found.details["reason"]), (Code::NoSpace, "disk_full"));
        assert_eq!(found.details["path"], "/tmp/\u{fffd}x");
    }

    #[test]
    fn a_long_path_is_cut() {
        let found = problem(Errno::ENAMETOOLONG, &[b'x'; 100_000]);
        assert_eq!(found.details["path"].len(), MAX_SHOWN_CHARS);
        assert!(found.detail.len() < 2 * MAX_SHOWN_CHARS);
    }
}
