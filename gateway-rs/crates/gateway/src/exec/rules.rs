use std::fmt::Display;
use std::ops::RangeInclusive;

use wire::Problem;
use wire::agent::{ExecRequest, Keep};

use crate::http::fields::{check_no_nul, check_text, check_user, invalid, small, too_large};

/// The upper end is a week: longer than any sandbox lives (an estimate). 0 is refused: to have no
/// timeout, the field is left out.
pub(super) const TIMEOUT_MS: RangeInclusive<u64> = 1..=7 * 24 * 60 * 60 * 1000;

/// Kept output of each stream, at most (contract: exec semantics).
pub(super) const OUTPUT_BYTES: RangeInclusive<u64> = 1..=16 << 20;

/// Permission bits.
pub(super) const UMASK: RangeInclusive<u64> = 0..=0o777;

/// Columns and rows: a kernel's `winsize` has 16 bits for each (tty_ioctl(4)).
pub(crate) const TERMINAL: RangeInclusive<u64> = 1..=65_535;

/// Signals that exist (signal(7)).
pub(crate) const SIGNAL: RangeInclusive<u64> = 1..=64;

/// contract: exec semantics. Larger input is written by an attached client.
const MAX_STDIN_BYTES: usize = 16 << 20;

/// contract: agent.proto, ExecRequest.exec_id.
const MAX_EXEC_ID_BYTES: usize = 64;
/// Processes that are spared when a command of a shell is abandoned.
const MAX_SPARED: usize = 4096;

/// One string of execve, without its NUL: MAX_ARG_STRLEN, 32 pages (execve(2)). A longer one can never work; a shorter
/// one may still be too long for a small target, which the sidecar finds out.
const MAX_ARGUMENT_BYTES: usize = 131_071;

/// All strings together, as Linux counts them: the most that it accepts whatever the stack limit is (execve(2)). Less
/// may still be too much, for a quarter of the stack limit or for another kernel.
const MAX_ARGUMENTS_BYTES: usize = 6 << 20;

/// Counted with each string, as Linux does.
const POINTER_BYTES: usize = 8;

/// PATH_MAX less its NUL (path_resolution(7)).
const MAX_CWD_BYTES: usize = 4095;

/// The problem for arguments that no kernel accepts.
fn arguments_too_large(field: &str, bytes: usize, limit: usize) -> Problem {
    let detail = format!("{field} has {bytes} bytes, a kernel takes at most {limit}");
    let problem = invalid(field, detail).with("reason", "arguments_too_large");
    problem.with("limit_bytes", limit).with("actual_bytes", bytes)
}

/// Checks that exactly one of argv and command is given; an empty argv names no program.
pub(super) fn given(field: &str, argv: Option<Vec<String>>, command: bool) -> Result<Vec<String>, Problem> {
    match (argv, command) {
        (Some(_), true) => Err(invalid("command", "argv and command are both given, exactly one is needed")),
        (None, false) => Err(invalid(field, "neither argv nor command is given, exactly one is needed")),
        (Some(argv), false) if argv.first().is_none_or(String::is_empty) => {
            Err(invalid(field, "argv names no program: it or its first element is empty"))
        }
        (argv, _) => Ok(argv.unwrap_or_default()),
    }
}

/// Returns the text, or "" where it is absent. Refuses an empty text: on the wire to the sidecar empty means absent.
pub(super) fn filled(field: &str, text: Option<String>) -> Result<String, Problem> {
    match text {
        Some(text) if text.is_empty() => Err(invalid(field, format!("{field} is empty"))),
        text => Ok(text.unwrap_or_default()),
    }
}

/// Which part of a longer stream is kept; by default the last bytes.
pub(super) fn keep(name: Option<String>) -> Result<Keep, Problem> {
    match name.as_deref() {
        None | Some("tail") => Ok(Keep::Tail),
        Some("head") => Ok(Keep::Head),
        Some(other) => Err(invalid("keep", format!("keep is {other:?}, it must be head or tail"))),
    }
}

/// Checks an `exec_id` of a body or of a path.
pub(crate) fn check_exec_id(exec_id: &str) -> Result<(), Problem> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=MAX_EXEC_ID_BYTES).contains(&exec_id.len()) && exec_id.bytes().all(allowed) {
        return Ok(());
    }
    let rule = format!("it must be 1 to {MAX_EXEC_ID_BYTES} of A-Z a-z 0-9 _ -");
    Err(invalid("exec_id", format!("exec_id is {exec_id:?}: {rule}")))
}

/// Checks which command of a shell is to be abandoned, and which processes are spared.
pub(super) fn spared(command_id: Option<&str>, pids: &[u64]) -> Result<Vec<u32>, Problem> {
    match command_id {
        Some(id) if !(1..=MAX_EXEC_ID_BYTES).contains(&id.len()) => {
            Err(invalid("command_id", format!("command_id must be 1 to {MAX_EXEC_ID_BYTES} bytes long")))
        }
        None if !pids.is_empty() => Err(invalid("spared", "spared is given without command_id")),
        _ if pids.len() > MAX_SPARED => Err(invalid(
            "spared",
            format!("spared has {} entries, it must be {MAX_SPARED} at most", pids.len()),
        )),
        _ => pids.iter().map(|pid| small("spared", *pid, 1..=u32::MAX.into())).collect(),
    }
}

/// Checks all that can be checked of the fields without the sandbox.
pub(super) fn check(request: &ExecRequest) -> Result<(), Problem> {
    check_exec_id(&request.exec_id)?;
    check_text("cwd", &request.cwd, MAX_CWD_BYTES)?;
    check_user("user", &request.user)?;
    check_argument("command", &request.command, 0)?;
    let mut sum = request.command.len();
    for (n, argument) in request.argv.iter().enumerate() {
        check_argument(format_args!("argv[{n}]"), argument, 0)?;
        sum += argument.len() + 1 + POINTER_BYTES;
    }
    for (name, value) in &request.env {
        check_variable(name, value)?;
        sum += name.len() + value.len() + 2 + POINTER_BYTES;
    }
    if sum > MAX_ARGUMENTS_BYTES {
        return Err(arguments_too_large("argv, command and env together", sum, MAX_ARGUMENTS_BYTES));
    }
    if request.stdin.len() > MAX_STDIN_BYTES {
        return Err(too_large("stdin", request.stdin.len(), MAX_STDIN_BYTES));
    }
    Ok(())
}

fn check_variable(name: &str, value: &str) -> Result<(), Problem> {
    if name.is_empty() || name.contains(['=', '\0']) {
        let rule = "a name has at least one character and neither = nor NUL";
        return Err(invalid("env", format!("env has a variable named {name:?}: {rule}")));
    }
    check_argument(format_args!("env.{name}"), value, name.len() + 1)
}

/// Checks a string of execve, which has `more` bytes beside the text.
fn check_argument(field: impl Display, text: &str, more: usize) -> Result<(), Problem> {
    if text.len() + more > MAX_ARGUMENT_BYTES {
        return Err(arguments_too_large(&field.to_string(), text.len() + more, MAX_ARGUMENT_BYTES));
    }
    check_no_nul(field, text)
}
