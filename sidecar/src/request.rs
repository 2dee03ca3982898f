//! Requests, checked before anything is done. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::take;
use std::time::Duration;

use bytes::Bytes;
use wire::agent::{self, ConfigureRequest, ExecRequest, TerminalSize};
use wire::{Code, Problem};

use crate::problem::arguments_too_large;
use crate::ring::Keep;
use crate::spawner::frame::{OsBytes, Program, Size};

/// Output kept per stream when the request sets no limit.
pub const DEFAULT_OUTPUT_BYTES: usize = 4 << 20;
/// Output kept per stream at least where it waits for its readers. Bytes that are in the buffers of the gateway and the
/// network when a reader loses its connection must still be here when it reconnects.
pub const LEAST_WAITING_BYTES: usize = DEFAULT_OUTPUT_BYTES;
/// Output kept per stream at most.
pub const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Standard input at most.
pub const MAX_STDIN_BYTES: usize = 16 << 20;
/// Arguments and environment variables together: what Linux takes at most, whatever the limit of the stack is
/// (execve(2)). With a small limit less may be too much already, which the kernel finds out.
pub const MAX_ARGUMENT_BYTES: usize = 6 << 20;
/// One argument or variable, less its NUL (MAX_ARG_STRLEN, execve(2)). Checked here because gVisor answers a longer one
/// with the error for a program name that is too long.
const MAX_STRING_BYTES: usize = (128 << 10) - 1;
/// Environment variables of up to this size need no test whether the kernel takes them: half of what it takes whatever
/// the limit of the stack is (execve(2)).
const SURE_ENV_BYTES: usize = 64 << 10;
/// The kernel counts a pointer for each string, since Linux 4.13.
const POINTER_BYTES: usize = 8;
const MAX_EXEC_ID_BYTES: usize = 64;
const MAX_UMASK: u32 = 0o777;

/// The defaults that a claim sets: they override the image's, and a call overrides them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Working directory; empty: the image's.
    pub cwd: String,
    /// User; empty: the image's.
    pub user: String,
}

/// A command that is to be run.
#[derive(Debug, Clone)]
pub struct Command {
    /// The id that the caller gave it.
    pub exec_id: String,
    /// What to execute.
    pub program: Program,
    /// Working directory; empty: configured, else the image's.
    pub cwd: String,
    /// Environment variables that override the configured ones.
    pub env: BTreeMap<String, String>,
    /// User; empty: configured, else the image's.
    pub user: String,
    /// File mode creation mask; none: the target's.
    pub umask: Option<u32>,
    /// Input, closed after this unless `stdin_open`.
    pub stdin: Bytes,
    /// Whether more input may come.
    pub stdin_open: bool,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// Bytes of output that the result holds, of standard output and standard error.
    pub max_output_bytes: [usize; 2],
    /// Which part of a longer output is kept.
    pub keep: Keep,
    /// Whether the output waits for its readers rather than losing what they have not read.
    pub output_waits: bool,
    /// How long it lives on without anybody who is attached; none: for ever.
    pub orphan_grace: Option<Duration>,
    /// The terminal to run on.
    pub terminal: Option<Size>,
    /// Whether standard error goes where standard output goes.
    pub merge: bool,
}

/// Which call brings the request: some options are only for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Runs the command and waits for its result.
    Exec,
    /// Only starts the command.
    Start,
    /// A start that a caller will ask for.
    Ahead,
}

impl Command {
    /// Checks a request.
    ///
    /// # Errors
    /// `invalid_argument` or `payload_too_large`, naming the field at fault.
    pub fn new(request: ExecRequest, call: Call) -> Result<Self, Problem> {
        check_exec_id(&request.exec_id)?;
        check_options(&request, call)?;
        check_env(&request.env)?;
        check_text("cwd", &request.cwd)?;
        check_text("user", &request.user)?;
        check_stdin(request.stdin.len())?;
        check_arguments("argv, command and env together", argument_bytes(&request), MAX_ARGUMENT_BYTES)?;
        check_strings(&request)?;
        Ok(Self {
            max_output_bytes: output_bytes(&request)?,
            keep: keep(&request)?,
            program: program(request.argv, request.command)?,
            output_waits: request.output_waits,
            terminal: request.terminal.map(size).transpose()?,
            merge: request.merge,
            timeout: span(request.timeout_ms),
            orphan_grace: span(request.orphan_grace_ms),
            env: request.env.into_iter().collect(),
            exec_id: request.exec_id,
            cwd: request.cwd,
            user: request.user,
            umask: request.umask,
            stdin: request.stdin,
            stdin_open: request.stdin_open,
        })
    }

    /// Bytes of output that are kept, of standard output and standard error.
    pub fn kept_output_bytes(&self) -> [usize; 2] {
        let least = if self.output_waits { LEAST_WAITING_BYTES } else { 0 };
        self.max_output_bytes.map(|bytes| bytes.max(least))
    }

    /// Equal for equal parameters; the same `exec_id` with another fingerprint is a conflict. Not for storing: it may
    /// differ between versions of the sidecar.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.program {
            Program::Argv(argv) => (0, argv).hash(&mut hasher),
            Program::Shell(text) => (1, text).hash(&mut hasher),
            Program::Worker => 2.hash(&mut hasher),
        }
        (&self.cwd, &self.env, &self.user, self.umask, &self.stdin).hash(&mut hasher);
        (self.stdin_open, self.timeout, self.max_output_bytes).hash(&mut hasher);
        (self.keep, self.output_waits, self.orphan_grace, self.terminal, self.merge).hash(&mut hasher);
        hasher.finish()
    }

    /// Moves environment variables, directory and user out, filled up with the claim's defaults.
    pub fn take_bound(&mut self, defaults: Defaults) -> (Vec<(OsBytes, OsBytes)>, OsBytes, String) {
        let user = if self.user.is_empty() { defaults.user } else { take(&mut self.user) };
        let cwd = within(&defaults.cwd, &self.cwd);
        let mut env = defaults.env;
        env.append(&mut self.env);
        let env = env.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect();
        (env, cwd.into_bytes(), user)
    }
}

/// The directory of a command: a relative one is in the one that the claim bound, where there is one.
fn within(bound: &str, own: &str) -> String {
    match own {
        "" => bound.to_owned(),
        own if own.starts_with('/') || bound.is_empty() => own.to_owned(),
        own => format!("{bound}/{own}"),
    }
}

impl Defaults {
    /// Checks the defaults that a claim sets.
    ///
    /// # Errors
    /// `invalid_argument` or `payload_too_large`, naming the field at fault.
    pub fn new(request: ConfigureRequest) -> Result<Self, Problem> {
        check_env(&request.env)?;
        check_text("cwd", &request.cwd)?;
        check_text("user", &request.user)?;
        let size = env_bytes(&request.env) + request.cwd.len() + request.user.len();
        check_arguments("env, cwd and user", size, MAX_ARGUMENT_BYTES)?;
        check_variables(&request.env)?;
        Ok(Self { env: request.env.into_iter().collect(), cwd: request.cwd, user: request.user })
    }

    /// Whether a command may fail because of these defaults: a user or a directory may be missing, and the environment
    /// variables may be more than the kernel takes.
    #[must_use]
    pub fn can_fail(&self) -> bool {
        !self.cwd.is_empty() || !self.user.is_empty() || env_bytes(&self.env) > SURE_ENV_BYTES
    }
}

/// `exec_id` is 1 to 64 of `A-Z a-z 0-9 _ -`.
///
/// # Errors
/// `invalid_argument`: it is not.
pub fn check_exec_id(exec_id: &str) -> Result<(), Problem> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=MAX_EXEC_ID_BYTES).contains(&exec_id.len()) && exec_id.bytes().all(legal) {
        return Ok(());
    }
    Err(invalid("exec_id", &format!("exec_id {exec_id:?} is not 1 to 64 of A-Z, a-z, 0-9, _ and -")))
}

/// An `invalid_argument` that names its field.
pub fn invalid(field: &str, detail: &str) -> Problem {
    Problem::new(Code::InvalidArgument, detail).with("field", field)
}

fn span(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

fn check_options(request: &ExecRequest, call: Call) -> Result<(), Problem> {
    let started_only = [
        ("terminal", request.terminal.is_some()),
        ("output_waits", request.output_waits),
        ("orphan_grace_ms", request.orphan_grace_ms > 0),
    ];
    if let Some((field, _)) = started_only.iter().find(|(_, given)| *given && call == Call::Exec) {
        return Err(invalid(field, &format!("{field} is only for Start: Exec answers once")));
    }
    if request.terminal.is_some() && request.max_stderr_bytes > 0 {
        return Err(invalid("max_stderr_bytes", "max_stderr_bytes: on a terminal all output is stdout"));
    }
    if request.merge && (request.terminal.is_some() || request.max_stderr_bytes > 0) {
        return Err(invalid(
            "merge",
            "merge: all output is stdout, so it goes with neither max_stderr_bytes nor a terminal",
        ));
    }
    if request.umask.is_some_and(|mask| mask > MAX_UMASK) {
        return Err(invalid(
            "umask",
            &format!("umask {:#o} is not within 0 and 0o777", request.umask.unwrap_or(0)),
        ));
    }
    Ok(())
}

fn program(argv: Vec<String>, command: String) -> Result<Program, Problem> {
    match (argv.first(), command.is_empty()) {
        (Some(_), false) => {
            Err(invalid("command", "both argv and command are given; it must be one of them"))
        }
        (None, true) => Err(invalid("argv", "neither argv nor command is given, or both are empty")),
        (None, false) => {
            check_text("command", &command)?;
            Ok(Program::Shell(command.into_bytes()))
        }
        (Some(program), true) => {
            if program.is_empty() {
                return Err(invalid("argv", "argv[0], the program, is empty"));
            }
            argv.iter().try_for_each(|argument| check_text("argv", argument))?;
            Ok(Program::Argv(argv.into_iter().map(String::into_bytes).collect()))
        }
    }
}

/// Bytes of output that the result holds, of standard output and standard error.
fn output_bytes(request: &ExecRequest) -> Result<[usize; 2], Problem> {
    let bytes = |field, wanted: u64, default| match usize::try_from(wanted) {
        Ok(0) => Ok(default),
        Ok(bytes) if bytes <= MAX_OUTPUT_BYTES => Ok(bytes),
        _ => Err(invalid(field, &format!("{field} {wanted} is more than {MAX_OUTPUT_BYTES}"))),
    };
    let stdout = bytes("max_output_bytes", request.max_output_bytes, DEFAULT_OUTPUT_BYTES)?;
    Ok([stdout, bytes("max_stderr_bytes", request.max_stderr_bytes, stdout)?])
}

fn keep(request: &ExecRequest) -> Result<Keep, Problem> {
    match agent::Keep::try_from(request.keep) {
        Ok(agent::Keep::Tail) => Ok(Keep::Tail),
        Ok(agent::Keep::Head) if request.output_waits => Err(invalid(
            "output_waits",
            "output_waits is for the last bytes (keep: tail): the first ones are never dropped",
        )),
        Ok(agent::Keep::Head) => Ok(Keep::Head),
        Err(_) => Err(invalid("keep", &format!("keep {} is neither head nor tail", request.keep))),
    }
}

/// The size of a terminal's window.
///
/// # Errors
/// `invalid_argument`: a side is 0 or too large.
pub fn size(wanted: TerminalSize) -> Result<Size, Problem> {
    let TerminalSize { columns, rows } = wanted;
    let side = |value: u32| u16::try_from(value).ok().filter(|value| *value > 0);
    side(columns).zip(side(rows)).map(|(columns, rows)| Size { columns, rows }).ok_or_else(|| {
        invalid(
            "terminal",
            &format!("a terminal of {columns} columns and {rows} rows: each is 1 to {}", u16::MAX),
        )
    })
}

fn check_env<'a>(env: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<(), Problem> {
    for (name, value) in env {
        if name.is_empty() || name.contains('=') {
            return Err(invalid("env", &format!("the variable name {name:?} is empty or contains =")));
        }
        check_text("env", name)?;
        check_text("env", value)?;
    }
    Ok(())
}

fn check_text(field: &str, text: &str) -> Result<(), Problem> {
    match text.find('\0') {
        Some(at) => Err(invalid(field, &format!("{field} has a NUL at byte {at}"))),
        None => Ok(()),
    }
}

fn check_stdin(bytes: usize) -> Result<(), Problem> {
    if bytes <= MAX_STDIN_BYTES {
        return Ok(());
    }
    let detail =
        format!("stdin has {bytes} bytes; the limit is {MAX_STDIN_BYTES}, more is written with stdin_open");
    Err(Problem::new(Code::PayloadTooLarge, detail)
        .with("limit_bytes", MAX_STDIN_BYTES)
        .with("actual_bytes", bytes))
}

fn check_arguments(what: &str, bytes: usize, limit: usize) -> Result<(), Problem> {
    if bytes <= limit {
        return Ok(());
    }
    let detail = format!("{what} has {bytes} bytes; a kernel takes at most {limit}");
    Err(arguments_too_large(detail).with("limit_bytes", limit).with("actual_bytes", bytes))
}

fn check_strings(request: &ExecRequest) -> Result<(), Problem> {
    // The program is left out: one whose name is too long is not found.
    let given = request.argv.iter().skip(1).chain([&request.command]);
    given.into_iter().try_for_each(|text| check_arguments("an argument", text.len(), MAX_STRING_BYTES))?;
    check_variables(&request.env)
}

fn check_variables<'a>(env: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<(), Problem> {
    env.into_iter().try_for_each(|(name, value)| {
        check_arguments("a variable with its name", name.len() + value.len() + 1, MAX_STRING_BYTES)
    })
}

/// Counts as the kernel does: every string with its NUL and a pointer to it. Directory and user are no arguments, but
/// are bounded together with them.
fn argument_bytes(request: &ExecRequest) -> usize {
    let argv: usize = request.argv.iter().map(|argument| argument.len() + 1 + POINTER_BYTES).sum();
    let texts = request.command.len() + request.cwd.len() + request.user.len() + 1;
    argv + env_bytes(&request.env) + texts
}

fn env_bytes<'a>(env: impl IntoIterator<Item = (&'a String, &'a String)>) -> usize {
    env.into_iter().map(|(name, value)| name.len() + value.len() + 2 + POINTER_BYTES).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn only_what_may_keep_a_command_from_running_has_to_be_tried() {
        let bound = |env: &str, cwd: &str, user: &str| {
            let env = HashMap::from([("A".to_owned(), env.to_owned())]);
            let request = ConfigureRequest { env, cwd: cwd.into(), user: user.into(), ..Default::default() };
            Defaults::new(request).unwrap().can_fail()
        };
        assert!(!bound("small", "", ""));
        assert!(bound("", "/tmp", ""));
        assert!(bound("", "", "nobody"));
        assert!(bound(&"x".repeat(100_000), "", ""));
    }

    fn request() -> ExecRequest {
        ExecRequest { exec_id: "e-1".into(), argv: vec!["true".into()], ..ExecRequest::default() }
    }

    fn refusal(change: impl FnOnce(&mut ExecRequest)) -> Problem {
        let mut request = request();
        change(&mut request);
        Command::new(request, Call::Exec).unwrap_err()
    }

    fn field(change: impl FnOnce(&mut ExecRequest)) -> String {
        let problem = refusal(change);
        assert_eq!(problem.code, Code::InvalidArgument);
        problem.details["field"].clone()
    }

    #[test]
    fn defaults_fill_what_the_caller_leaves_out() {
        let command = Command::new(request(), Call::Exec).unwrap();
        assert_eq!((command.max_output_bytes, command.timeout), ([DEFAULT_OUTPUT_BYTES; 2], None));
        assert_eq!((command.umask, command.keep, command.terminal), (None, Keep::Tail, None));
        assert_eq!(command.program, Program::Argv(vec![b"true".to_vec()]));
    }

    #[test]
    fn a_bad_argument_is_refused_with_its_field() {
        assert_eq!(field(|r| r.exec_id = "a b".into()), "exec_id");
        assert_eq!(field(|r| r.exec_id = "x".repeat(65)), "exec_id");
        assert_eq!(field(|r| r.exec_id = String::new()), "exec_id");
        assert_eq!(field(|r| r.argv.clear()), "argv");
        assert_eq!(field(|r| r.argv = vec![String::new()]), "argv");
        assert_eq!(field(|r| r.argv.push("a\0b".into())), "argv");
        assert_eq!(field(|r| r.command = "true".into()), "command");
        assert_eq!(field(|r| r.cwd = "/a\0".into()), "cwd");
        assert_eq!(field(|r| r.env = HashMap::from([("A=".into(), "1".into())])), "env");
        assert_eq!(field(|r| r.env = HashMap::from([("A".into(), "\0".into())])), "env");
        assert_eq!(field(|r| r.umask = Some(0o1000)), "umask");
        assert_eq!(field(|r| r.max_output_bytes = u64::MAX), "max_output_bytes");
        assert_eq!(field(|r| r.max_stderr_bytes = u64::MAX), "max_stderr_bytes");
        assert_eq!(field(|r| r.keep = 2), "keep");
        assert_eq!(field(|r| r.output_waits = true), "output_waits");
        assert_eq!(field(|r| r.orphan_grace_ms = 1), "orphan_grace_ms");
        assert_eq!(field(|r| (r.merge, r.max_stderr_bytes) = (true, 1)), "merge");
        assert_eq!(field(|r| r.terminal = Some(TerminalSize { columns: 80, rows: 24 })), "terminal");
    }

    #[test]
    fn a_started_command_may_have_a_terminal_of_a_size() {
        let start = |change: fn(&mut ExecRequest)| {
            let mut request = request();
            change(&mut request);
            Command::new(request, Call::Start)
        };
        let terminal = |columns, rows| Some(TerminalSize { columns, rows });
        let command = start(|r| r.terminal = Some(TerminalSize { columns: 80, rows: 24 })).unwrap();
        assert_eq!(command.terminal, Some(Size { columns: 80, rows: 24 }));
        for wrong in [terminal(0, 24), terminal(80, 0), terminal(65536, 24)] {
            let refused =
                Command::new(ExecRequest { terminal: wrong, ..request() }, Call::Start).unwrap_err();
            assert_eq!(refused.details["field"], "terminal");
        }
        let stderr = start(|r| {
            r.terminal = Some(TerminalSize { columns: 80, rows: 24 });
            r.max_stderr_bytes = 1;
        });
        assert_eq!(stderr.unwrap_err().details["field"], "max_stderr_bytes");
        let head = start(|r| (r.keep, r.output_waits) = (agent::Keep::Head.into(), true));
        assert_eq!(head.unwrap_err().details["field"], "output_waits");
    }

    #[test]
    fn what_is_too_large_says_so() {
        let large = "x".repeat(MAX_STRING_BYTES + 1);
        let many = || vec![String::new(); MAX_ARGUMENT_BYTES / (POINTER_BYTES + 1)];
        let cases: [&dyn Fn(&mut ExecRequest); 5] = [
            &|r| r.argv.extend(many()),
            &|r| r.argv.extend(vec!["x".repeat(MAX_STRING_BYTES); MAX_ARGUMENT_BYTES / MAX_STRING_BYTES + 1]),
            &|r| r.argv.push(large.clone()),
            &|r| (r.argv, r.command) = (Vec::new(), large.clone()),
            &|r| r.env = HashMap::from([("A".into(), large[2..].to_owned())]),
        ];
        for case in cases {
            let refused = refusal(case);
            assert_eq!(
                (refused.code, &*refused.details["reason"]),
                (Code::InvalidArgument, "arguments_too_large")
            );
        }
        let bound = HashMap::from([("A".into(), large[1..].to_owned())]);
        let refused = Defaults::new(ConfigureRequest { env: bound, ..Default::default() }).unwrap_err();
        assert_eq!(refused.details["reason"], "arguments_too_large");
        let mut fits = request();
        fits.argv.push(large[1..].to_owned());
        assert!(Command::new(fits, Call::Exec).is_ok());
        assert_eq!(refusal(|r| r.stdin = vec![0; MAX_STDIN_BYTES + 1].into()).code, Code::PayloadTooLarge);
    }

    #[test]
    fn the_fingerprint_tells_parameters_apart_but_not_the_order_of_variables() {
        let fingerprint = |change: &dyn Fn(&mut ExecRequest)| {
            let mut request = request();
            change(&mut request);
            Command::new(request, Call::Start).unwrap().fingerprint()
        };
        let base = fingerprint(&|_| {});
        let changes: [&dyn Fn(&mut ExecRequest); 14] = [
            &|r| r.umask = Some(0),
            &|r| r.max_stderr_bytes = 1,
            &|r| r.keep = agent::Keep::Head.into(),
            &|r| r.output_waits = true,
            &|r| r.orphan_grace_ms = 1,
            &|r| r.merge = true,
            &|r| r.terminal = Some(TerminalSize { columns: 80, rows: 24 }),
            &|r| r.argv.push("x".into()),
            &|r| r.cwd = "/".into(),
            &|r| r.stdin = Bytes::from_static(b"x"),
            &|r| r.timeout_ms = 1,
            &|r| r.max_output_bytes = 1,
            &|r| r.stdin_open = true,
            &|r| r.env = HashMap::from([("A".into(), "1".into())]),
        ];
        assert!(changes.iter().all(|change| fingerprint(change) != base));
        let many = |r: &mut ExecRequest| r.env = (0..50).map(|n| (format!("V{n}"), "1".into())).collect();
        assert_eq!(fingerprint(&many), fingerprint(&many));
    }

    #[test]
    fn the_call_wins_over_what_the_claim_bound() {
        let request = ExecRequest {
            env: HashMap::from([("A".into(), "call".into())]),
            user: "bob".into(),
            ..request()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let defaults = Defaults {
            env: [pair("A", "bound"), pair("B", "bound")].into(),
            cwd: "/srv".into(),
            user: "root".into(),
        };
        let (env, cwd, user) = Command::new(request, Call::Exec).unwrap().take_bound(defaults);
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(env, [pair("A", "call"), pair("B", "bound")]);
        assert_eq!((cwd.as_slice(), user.as_str()), (&b"/srv"[..], "bob"));
    }

    #[test]
    fn a_relative_directory_is_in_the_one_that_the_claim_bound() {
        for (bound, own, used) in [
            ("/srv", "", "/srv"),
            ("/srv", "sub/dir", "/srv/sub/dir"),
            ("/srv", "/tmp", "/tmp"),
            ("", "sub", "sub"),
            ("", "", ""),
        ] {
            assert_eq!(within(bound, own), used);
        }
    }
}
