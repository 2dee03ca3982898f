use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use wire::agent::{ExecRequest, SignalRequest, TerminalSize};
use wire::{Code, Problem};

use super::rules;
use crate::http::fields;

/// The body of `POST .../exec` and of `POST .../execs` as it is sent. `null` means absent.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    exec_id: Option<String>,
    #[serde(default)]
    argv: Option<Vec<String>>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    env: Option<Env>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    stdin_encoding: Option<String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    max_output_bytes: Option<u64>,
    #[serde(default)]
    max_stderr_bytes: Option<u64>,
    #[serde(default)]
    keep: Option<String>,
    #[serde(default)]
    umask: Option<u64>,
    #[serde(default)]
    stdin_open: Option<bool>,
    #[serde(default)]
    terminal: Option<Terminal>,
    #[serde(default)]
    output_waits: Option<bool>,
    #[serde(default)]
    orphan_grace_ms: Option<u64>,
    #[serde(default)]
    merge: Option<bool>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Terminal {
    columns: u64,
    rows: u64,
}

/// Reads and checks the body of `POST .../exec`; `make_id` makes the `exec_id` of a request without one.
///
/// # Errors
/// `invalid_argument` or `payload_too_large`. The detail names field, value and rule; `details.field` is the field;
/// for a body that does not parse, `details.line` and `details.column` are the position.
pub fn decode(body: &[u8], make_id: impl FnOnce() -> String) -> Result<ExecRequest, Problem> {
    let body: Body = read(body)?;
    // `stdin_open` is allowed, since an attached client may write the input of an exec; the other fields for attached
    // clients make no sense here.
    let given = [
        ("terminal", body.terminal.is_some()),
        ("output_waits", body.output_waits.is_some()),
        ("orphan_grace_ms", body.orphan_grace_ms.is_some()),
    ];
    if let Some((field, _)) = given.iter().find(|(_, given)| *given) {
        let detail = format!("{field} is given; it is for commands that are attached to (POST .../execs)");
        return Err(fields::invalid(field, detail));
    }
    checked(body, make_id)
}

/// The same for the body of `POST .../execs`, which starts a command that clients attach to.
///
/// # Errors
/// As [`decode`].
pub fn decode_start(body: &[u8], make_id: impl FnOnce() -> String) -> Result<ExecRequest, Problem> {
    let body: Body = read(body)?;
    if body.terminal.is_some() && body.max_stderr_bytes.is_some() {
        let detail = "max_stderr_bytes is given with a terminal, on which all output is stdout";
        return Err(fields::invalid("max_stderr_bytes", detail));
    }
    if body.output_waits == Some(true) && body.keep.as_deref() == Some("head") {
        let detail =
            "output_waits is given with keep head, which never waits: what is over the limit is dropped";
        return Err(fields::invalid("output_waits", detail));
    }
    checked(body, make_id)
}

/// Reads and checks the body of `POST .../signal`.
///
/// # Errors
/// As [`decode`].
pub(super) fn decode_signal(body: &[u8], exec_id: String) -> Result<SignalRequest, Problem> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        signal: u64,
        #[serde(default)]
        tree: Option<bool>,
        #[serde(default)]
        command_id: Option<String>,
        #[serde(default)]
        spared: Option<Vec<u64>>,
    }
    let Body { signal, tree, command_id, spared } = read(body)?;
    let signal = fields::small("signal", signal, rules::SIGNAL)?;
    let spared = rules::spared(command_id.as_deref(), &spared.unwrap_or_default())?;
    Ok(SignalRequest {
        exec_id,
        signal,
        tree: tree.unwrap_or_default(),
        command_id: command_id.unwrap_or_default(),
        spared,
    })
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    check_object(body)?;
    // First without the path: tracking it costs time, and nearly every body is valid.
    serde_json::from_slice(body).map_err(|_| locate::<T>(body))
}

fn check_merge(body: &Body) -> Result<(), Problem> {
    let other =
        [("max_stderr_bytes", body.max_stderr_bytes.is_some()), ("terminal", body.terminal.is_some())];
    match other.iter().find(|(_, given)| *given && body.merge == Some(true)) {
        Some((field, _)) => Err(fields::invalid(
            "merge",
            format!("merge is given with {field}, but all output is stdout then"),
        )),
        None => Ok(()),
    }
}

fn checked(body: Body, make_id: impl FnOnce() -> String) -> Result<ExecRequest, Problem> {
    check_merge(&body)?;
    let request = ExecRequest {
        exec_id: body.exec_id.unwrap_or_else(make_id),
        argv: rules::given("argv", body.argv, body.command.is_some())?,
        command: rules::filled("command", body.command)?,
        cwd: rules::filled("cwd", body.cwd)?,
        env: body.env.unwrap_or_default().0,
        user: rules::filled("user", body.user)?,
        stdin: stdin(body.stdin, body.stdin_encoding)?,
        timeout_ms: fields::in_range("timeout_ms", body.timeout_ms, rules::TIMEOUT_MS)?,
        max_output_bytes: fields::in_range("max_output_bytes", body.max_output_bytes, rules::OUTPUT_BYTES)?,
        max_stderr_bytes: fields::in_range("max_stderr_bytes", body.max_stderr_bytes, rules::OUTPUT_BYTES)?,
        keep: rules::keep(body.keep)?.into(),
        umask: body.umask.map(|umask| fields::small("umask", umask, rules::UMASK)).transpose()?,
        stdin_open: body.stdin_open.unwrap_or_default(),
        terminal: body.terminal.map(terminal).transpose()?,
        output_waits: body.output_waits.unwrap_or_default(),
        orphan_grace_ms: fields::in_range("orphan_grace_ms", body.orphan_grace_ms, rules::TIMEOUT_MS)?,
        merge: body.merge.unwrap_or_default(),
    };
    rules::check(&request)?;
    Ok(request)
}

fn terminal(size: Terminal) -> Result<TerminalSize, Problem> {
    Ok(TerminalSize {
        columns: fields::small("terminal.columns", size.columns, rules::TERMINAL)?,
        rows: fields::small("terminal.rows", size.rows, rules::TERMINAL)?,
    })
}

/// Refuses an array: serde would read a struct from it too, field by field.
fn check_object(body: &[u8]) -> Result<(), Problem> {
    let start = body.iter().position(|b| !b.is_ascii_whitespace());
    match start {
        Some(at) if body[at] == b'[' => {
            let line = 1 + body[..at].iter().filter(|b| **b == b'\n').count();
            let column = 1 + body[..at].iter().rev().take_while(|b| **b != b'\n').count();
            let problem =
                Problem::new(Code::InvalidArgument, "the body is wrong: it is an array, not an object");
            Err(problem.with("line", line).with("column", column))
        }
        _ => Ok(()),
    }
}

/// Names the position of the mistake in a body that does not parse.
fn locate<T: DeserializeOwned>(body: &[u8]) -> Problem {
    let reader = &mut serde_json::Deserializer::from_slice(body);
    let (path, error) = match serde_path_to_error::deserialize::<_, T>(reader) {
        Ok(_) => match serde_json::from_slice::<T>(body) {
            // A valid value with more text behind it: only reading to the end finds that.
            Err(error) => (String::new(), error),
            Ok(_) => return fields::invalid("body", "the body is wrong"),
        },
        Err(error) => (error.path().to_string(), error.into_inner()),
    };
    let field = if path.is_empty() || path == "." || path == "?" { unknown_field(&error) } else { path };
    let place = if field.is_empty() { String::new() } else { format!(" at {field}") };
    let problem = Problem::new(Code::InvalidArgument, format!("the body is wrong{place}: {error}"))
        .with("line", error.line())
        .with("column", error.column());
    if field.is_empty() { problem } else { problem.with("field", field) }
}

/// The field of an error without a path: the deserializer names it only in its message.
fn unknown_field(error: &serde_json::Error) -> String {
    let text = error.to_string();
    ["unknown field `", "duplicate field `"]
        .iter()
        .find_map(|start| text.strip_prefix(start)?.split('`').next().map(str::to_owned))
        .unwrap_or_default()
}

fn stdin(text: Option<String>, encoding: Option<String>) -> Result<Bytes, Problem> {
    let Some(text) = text else {
        return match encoding {
            Some(_) => Err(fields::invalid("stdin_encoding", "stdin_encoding is given but stdin is not")),
            None => Ok(Bytes::new()),
        };
    };
    match encoding.as_deref() {
        None | Some("utf-8") => Ok(Bytes::from(text)),
        Some("base64") => STANDARD
            .decode(text.as_bytes())
            .map(Bytes::from)
            .map_err(|e| fields::invalid("stdin", format!("stdin is not base64: {e}"))),
        Some(other) => {
            let detail = format!("stdin_encoding is {other:?}, it must be utf-8 or base64");
            Err(fields::invalid("stdin_encoding", detail))
        }
    }
}

/// Variable names and values; a name that is given twice is refused, because one of its values would be ignored.
#[derive(Default)]
struct Env(HashMap<String, String>);

impl<'de> Deserialize<'de> for Env {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Env;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Env, A::Error> {
                let mut env = HashMap::with_capacity(map.size_hint().unwrap_or(0));
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if env.contains_key(&name) {
                        return Err(de::Error::custom(format!("{name} is given twice")));
                    }
                    env.insert(name, value);
                }
                Ok(Env(env))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

#[cfg(test)]
mod tests;
