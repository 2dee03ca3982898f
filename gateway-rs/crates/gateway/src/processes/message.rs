use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::ws::Message;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wire::agent::attach_event::Event;
use wire::agent::{Chunk, End, ExecResult, Output, TerminalSize};
use wire::{Problem, end_name};

use crate::exec::rules;
use crate::http::fields;
use crate::http::json::ms;

/// Kinds of binary messages: their first byte. Then eight bytes of offset, big-endian, then data.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const HEAD_BYTES: usize = 9;

/// The largest message of a client. A long one delays those behind it, a Ctrl-C for example.
pub(super) const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Output in one message, unless a single chunk is larger. A client pays by the message; above this size its allocator
/// returns the memory and takes it again with each message, which costs the client more.
const MAX_GATHERED_BYTES: usize = 64 << 10;

/// A message of an attached client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttachMessage {
    Stdin { offset: u64, data: Bytes, eof: bool },
    Signal { signal: u32, tree: bool },
    Resize(TerminalSize),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Text {
    StdinEof {
        offset: u64,
    },
    Signal {
        signal: u64,
        #[serde(default)]
        tree: bool,
    },
    Resize {
        columns: u64,
        rows: u64,
    },
}

/// Reads a binary message of a client.
///
/// # Errors
/// `invalid_argument` naming what is wrong with it.
pub(super) fn binary(mut message: Bytes) -> Result<AttachMessage, Problem> {
    if message.len() < HEAD_BYTES {
        let detail = format!("a binary message has {} bytes, its head alone has {HEAD_BYTES}", message.len());
        return Err(fields::invalid("message", detail));
    }
    match message.get_u8() {
        STDIN => {
            let offset = message.get_u64();
            let end = offset.checked_add(u64::try_from(message.len()).unwrap_or(u64::MAX));
            end.ok_or_else(|| {
                fields::invalid("offset", format!("stdin at offset {offset} exceeds 2^64 - 1"))
            })?;
            Ok(AttachMessage::Stdin { offset, data: message, eof: false })
        }
        kind => {
            let detail = format!("a binary message is of kind {kind}, a client sends only {STDIN} (stdin)");
            Err(fields::invalid("kind", detail))
        }
    }
}

/// Reads a text message of a client.
///
/// # Errors
/// `invalid_argument` naming what is wrong with it.
pub(super) fn text(message: &str) -> Result<AttachMessage, Problem> {
    let wrong = |e| fields::invalid("message", format!("a text message is wrong: {e}"));
    Ok(match serde_json::from_str(message).map_err(wrong)? {
        Text::StdinEof { offset } => AttachMessage::Stdin { offset, data: Bytes::new(), eof: true },
        Text::Signal { signal, tree } => {
            AttachMessage::Signal { signal: number("signal", signal, rules::SIGNAL)?, tree }
        }
        Text::Resize { columns, rows } => AttachMessage::Resize(TerminalSize {
            columns: number("columns", columns, rules::TERMINAL)?,
            rows: number("rows", rows, rules::TERMINAL)?,
        }),
    })
}

fn number(field: &str, number: u64, range: RangeInclusive<u64>) -> Result<u32, Problem> {
    fields::small(field, number, range)
}

/// Any message is decoded, after a first byte of 0 as text and after any other as binary, or refused with
/// `invalid_argument`.
#[cfg(any(test, fuzzing))]
pub fn check_decoding(bytes: &[u8]) {
    let decoded = match bytes.split_first() {
        Some((0, rest)) => match std::str::from_utf8(rest) {
            Ok(rest) => text(rest),
            Err(_) => return,
        },
        Some((_, rest)) => binary(Bytes::copy_from_slice(rest)),
        None => binary(Bytes::new()),
    };
    if let Err(problem) = decoded {
        assert_eq!(problem.code, wire::Code::InvalidArgument, "{problem}");
    }
}

/// Output of one stream without a gap, to be sent in one message.
#[derive(Debug)]
pub(super) struct Gathered {
    kind: u8,
    offset: u64,
    parts: Vec<Bytes>,
    bytes: usize,
}

impl Gathered {
    pub(super) fn stdout(chunk: Chunk) -> Self {
        Self::new(STDOUT, chunk)
    }

    pub(super) fn stderr(chunk: Chunk) -> Self {
        Self::new(STDERR, chunk)
    }

    fn new(kind: u8, Chunk { offset, data }: Chunk) -> Self {
        Self { kind, offset, bytes: data.len(), parts: vec![data] }
    }

    /// Whether `next` can be added: the same stream, no gap, and not too much.
    pub(super) fn takes(&self, next: &Option<Event>) -> bool {
        let (kind, chunk) = match next {
            Some(Event::Stdout(chunk)) => (STDOUT, chunk),
            Some(Event::Stderr(chunk)) => (STDERR, chunk),
            Some(Event::Result(_)) | None => return false,
        };
        let end = self.offset.checked_add(self.bytes as u64);
        kind == self.kind && end == Some(chunk.offset) && self.bytes + chunk.data.len() <= MAX_GATHERED_BYTES
    }

    /// Adds an event that `takes` has accepted.
    pub(super) fn add(&mut self, next: Option<Event>) {
        if let Some(Event::Stdout(Chunk { data, .. }) | Event::Stderr(Chunk { data, .. })) = next {
            self.bytes += data.len();
            self.parts.push(data);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn message(&self) -> Message {
        let mut message = BytesMut::with_capacity(HEAD_BYTES + self.bytes);
        message.put_u8(self.kind);
        message.put_u64(self.offset);
        self.parts.iter().for_each(|part| message.put_slice(part));
        Message::Binary(message.freeze())
    }
}

/// Tells the client that all stdin below `offset` has been taken.
pub(super) fn taken(offset: u64) -> Message {
    Message::text(json!({"type": "stdin", "offset": offset}).to_string())
}

/// Tells the client that no more stdin will be taken; output continues.
pub(super) fn stdin_closed(problem: &Problem, request_id: &str) -> Message {
    Message::text(json!({"type": "stdin_closed", "problem": problem.to_json(request_id, None)}).to_string())
}

/// The last message: the result of the command, whose output was sent before.
pub(super) fn result(result: &ExecResult) -> Message {
    #[derive(Serialize)]
    struct Ended<'a> {
        r#type: &'static str,
        exec_id: &'a str,
        end: Option<&'static str>,
        exit_code: Option<i32>,
        signal: Option<u32>,
        stdout_total_bytes: u64,
        stderr_total_bytes: u64,
        spawn_ms: f64,
        run_ms: f64,
        replayed: bool,
    }
    let total = |output: &Option<Output>| output.as_ref().map_or(0, |output| output.total_bytes);
    let exited = result.end() == End::Exited;
    let ended = Ended {
        r#type: "result",
        exec_id: &result.exec_id,
        end: end_name(result.end()),
        exit_code: exited.then_some(result.exit_code),
        signal: Some(result.signal).filter(|signal| !exited && *signal != 0),
        stdout_total_bytes: total(&result.stdout),
        stderr_total_bytes: total(&result.stderr),
        spawn_ms: ms(Duration::from_micros(result.spawn_us)),
        run_ms: ms(Duration::from_micros(result.run_us)),
        replayed: result.replayed,
    };
    // Serializing plain structs of strings and numbers cannot fail.
    Message::text(serde_json::to_string(&ended).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use wire::Code;

    use super::*;

    fn parsed(message: &Message) -> Value {
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    #[test]
    fn what_a_client_may_say_is_understood() {
        let stdin = binary(Bytes::from_static(b"\0\0\0\0\0\0\0\x01\x02hi")).unwrap();
        assert_eq!(stdin, AttachMessage::Stdin { offset: 258, data: "hi".into(), eof: false });
        let eof = text(r#"{"type": "stdin_eof", "offset": 7}"#).unwrap();
        assert_eq!(eof, AttachMessage::Stdin { offset: 7, data: Bytes::new(), eof: true });
        let signal = text(r#"{"type": "signal", "signal": 15, "tree": true}"#).unwrap();
        assert_eq!(signal, AttachMessage::Signal { signal: 15, tree: true });
        let resize = text(r#"{"type": "resize", "columns": 80, "rows": 24}"#).unwrap();
        assert_eq!(resize, AttachMessage::Resize(TerminalSize { columns: 80, rows: 24 }));
    }

    #[test]
    fn everything_else_is_refused() {
        for message in
            [&b""[..], b"\0\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0\0", b"\0\xff\xff\xff\xff\xff\xff\xff\xffx"]
        {
            assert_eq!(binary(Bytes::copy_from_slice(message)).unwrap_err().code, Code::InvalidArgument);
        }
        for message in [
            "",
            "{}",
            "[]",
            "null",
            "{\"type\": \"stdin\"}",
            "{\"type\": \"stdin_eof\"}",
            "{\"type\": \"stdin_eof\", \"offset\": -1}",
            "{\"type\": \"signal\", \"signal\": 0}",
            "{\"type\": \"signal\", \"signal\": 65}",
            "{\"type\": \"signal\", \"signal\": 15, \"more\": 1}",
            "{\"type\": \"resize\", \"columns\": 80}",
            "{\"type\": \"resize\", \"columns\": 0, \"rows\": 24}",
            "{\"type\": \"resize\", \"columns\": 80, \"rows\": 65536}",
            "{\"type\": \"resize\"} x",
        ] {
            assert_eq!(text(message).unwrap_err().code, Code::InvalidArgument, "{message}");
        }
    }

    #[test]
    fn output_carries_its_offset_and_goes_with_what_follows_without_a_gap() {
        let chunk = |offset, data: &str| Chunk { offset, data: Bytes::from(data.to_owned()) };
        let mut gathered = Gathered::stderr(chunk(258, "hi"));
        let next = Some(Event::Stderr(chunk(260, "!")));
        assert!(gathered.takes(&next));
        gathered.add(next);
        let large = chunk(261, &"x".repeat(MAX_GATHERED_BYTES));
        for other in [
            None,
            Some(Event::Stdout(chunk(261, "x"))),
            Some(Event::Stderr(chunk(262, "x"))),
            Some(Event::Stderr(large)),
            Some(Event::Result(ExecResult::default())),
        ] {
            assert!(!gathered.takes(&other), "{other:?}");
        }
        assert_eq!(gathered.bytes(), 3);
        assert_eq!(gathered.message().into_data().as_ref(), b"\x02\0\0\0\0\0\0\x01\x02hi!");
    }

    #[test]
    fn a_result_has_the_totals() {
        let output = |total_bytes| Some(Output { total_bytes, ..Output::default() });
        let mut ended =
            ExecResult { exec_id: "e-1".into(), stdout: output(5), stderr: output(7), ..Default::default() };
        ended.set_end(End::Signalled);
        ended.signal = 9;
        let message = parsed(&result(&ended));
        assert_eq!(
            (&message["end"], &message["signal"], &message["exit_code"]),
            (&json!("signalled"), &json!(9), &json!(null))
        );
        assert_eq!((&message["stdout_total_bytes"], &message["stderr_total_bytes"]), (&json!(5), &json!(7)));
    }

    proptest! {
        #[test]
        fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check_decoding(&bytes);
        }

        #[test]
        fn texts_never_panic(message in "\\{\"type\": ?\"[a-z_]{1,10}\"(, ?\"[a-z]{1,8}\": ?-?[0-9]{1,25}){0,3}\\}") {
            check_decoding(format!("\0{message}").as_bytes());
        }
    }
}
