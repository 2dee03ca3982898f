use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use wire::agent::{CancelledAll, End, ExecResult, ExecSummary, ListResponse, Output, Started};
use wire::end_name;

use crate::http::json::{ms, write};

/// The answer to `POST .../exec` and to a cancel.
#[derive(Serialize)]
struct Answer<'a> {
    exec_id: &'a str,
    end: Option<&'static str>,
    exit_code: Option<i32>,
    signal: Option<u32>,
    stdout: Cow<'a, str>,
    stdout_encoding: &'static str,
    stdout_truncated: bool,
    stdout_total_bytes: u64,
    stderr: Cow<'a, str>,
    stderr_encoding: &'static str,
    stderr_truncated: bool,
    stderr_total_bytes: u64,
    queue_ms: f64,
    spawn_ms: f64,
    run_ms: f64,
    replayed: bool,
}

/// Encodes a result as JSON; `queue` is how long the exec waited for admission.
pub(super) fn encode(result: &ExecResult, queue: Duration) -> Vec<u8> {
    let none = Output::default();
    let (stdout, stderr) = (result.stdout.as_ref().unwrap_or(&none), result.stderr.as_ref().unwrap_or(&none));
    let (stdout_text, stdout_encoding) = text(&stdout.data);
    let (stderr_text, stderr_encoding) = text(&stderr.data);
    let exited = result.end() == End::Exited;
    let answer = Answer {
        exec_id: &result.exec_id,
        end: end_name(result.end()),
        exit_code: exited.then_some(result.exit_code),
        signal: Some(result.signal).filter(|signal| !exited && *signal != 0),
        stdout: stdout_text,
        stdout_encoding,
        stdout_truncated: stdout.truncated,
        stdout_total_bytes: stdout.total_bytes,
        stderr: stderr_text,
        stderr_encoding,
        stderr_truncated: stderr.truncated,
        stderr_total_bytes: stderr.total_bytes,
        queue_ms: ms(queue),
        spawn_ms: ms(Duration::from_micros(result.spawn_us)),
        run_ms: ms(Duration::from_micros(result.run_us)),
        replayed: result.replayed,
    };
    // Room for the fixed part and some escapes: one allocation for nearly every answer.
    let mut json = Vec::with_capacity(512 + answer.stdout.len() + answer.stderr.len());
    write(&mut json, &answer);
    json
}

/// The answer to `DELETE .../execs`.
pub(super) fn encode_cancelled(all: &CancelledAll) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer {
        cancelled: u32,
        left: u32,
    }
    let mut json = Vec::new();
    write(&mut json, &Answer { cancelled: all.cancelled, left: all.left });
    json
}

/// The answer to `POST .../execs`.
pub(super) fn encode_started(started: &Started) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        exec_id: &'a str,
        pid: u32,
        spawn_ms: f64,
        replayed: bool,
    }
    let Started { exec_id, pid, spawn_us, replayed } = started;
    let spawn_ms = ms(Duration::from_micros(*spawn_us));
    let mut json = Vec::new();
    write(&mut json, &Answer { exec_id, pid: *pid, spawn_ms, replayed: *replayed });
    json
}

/// One entry of `GET .../execs`.
#[derive(Serialize)]
struct Summary<'a> {
    exec_id: &'a str,
    argv: &'a [String],
    pid: u32,
    started_at_ms: u64,
    running: bool,
    end: Option<&'static str>,
    exit_code: Option<i32>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    ended_at_ms: Option<u64>,
    oom_kills: Option<u64>,
}

/// Encodes a list of execs as JSON, newest first as the sidecar sends them.
pub(super) fn encode_list(list: &ListResponse) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        execs: Vec<Summary<'a>>,
    }
    let mut json = Vec::new();
    write(&mut json, &List { execs: list.execs.iter().map(summary).collect() });
    json
}

fn summary(exec: &ExecSummary) -> Summary<'_> {
    let exited = !exec.running && exec.end() == End::Exited;
    Summary {
        exec_id: &exec.exec_id,
        argv: &exec.argv,
        pid: exec.pid,
        started_at_ms: exec.started_at_ms,
        running: exec.running,
        end: end_name(exec.end()).filter(|_| !exec.running),
        exit_code: exited.then_some(exec.exit_code),
        stdout_bytes: exec.stdout_bytes,
        stderr_bytes: exec.stderr_bytes,
        ended_at_ms: (exec.ended_at_ms > 0).then_some(exec.ended_at_ms),
        oom_kills: exec.running.then_some(exec.oom_kills),
    }
}

/// UTF-8 text as it is, anything else as base64: no byte is replaced or lost.
fn text(data: &[u8]) -> (Cow<'_, str>, &'static str) {
    match std::str::from_utf8(data) {
        Ok(text) => (Cow::Borrowed(text), "utf-8"),
        Err(_) => (Cow::Owned(STANDARD.encode(data)), "base64"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn encoded(result: &ExecResult) -> Value {
        serde_json::from_slice(&encode(result, Duration::from_micros(1234))).unwrap()
    }

    fn output(data: &[u8]) -> Option<Output> {
        let total_bytes = u64::try_from(data.len()).unwrap();
        Some(Output { data: data.to_vec(), total_bytes, truncated: false })
    }

    fn result(end: End) -> ExecResult {
        let mut result =
            ExecResult { exec_id: "e-1".into(), spawn_us: 900, run_us: 5_000_001, ..Default::default() };
        result.set_end(end);
        result
    }

    /// Builds a result from the plain form of the vectors; all of them have the same times.
    fn result_of(plain: &Value) -> ExecResult {
        let output = |name: &str| {
            let data = STANDARD.decode(plain[format!("{name}_base64")].as_str().unwrap()).unwrap();
            let total_bytes = plain[format!("{name}_total_bytes")].as_u64().unwrap();
            Some(Output { truncated: total_bytes > data.len() as u64, data, total_bytes })
        };
        let number = |name: &str| plain[name].as_u64().unwrap();
        let mut result = ExecResult {
            exec_id: "e-1".to_owned(),
            exit_code: i32::try_from(number("exit_code")).unwrap(),
            signal: u32::try_from(number("signal")).unwrap(),
            stdout: output("stdout"),
            stderr: output("stderr"),
            spawn_us: 900,
            run_us: 2000,
            replayed: plain["replayed"].as_bool().unwrap(),
            ..Default::default()
        };
        result.set_end(End::from_str_name(plain["end"].as_str().unwrap()).unwrap());
        result
    }

    #[test]
    fn the_shared_vectors_hold() {
        let text = include_str!("../../../../../contract/vectors/exec.json");
        let vectors: Value = serde_json::from_str(text).unwrap();
        for case in vectors["answers"].as_array().unwrap() {
            assert_eq!(encoded(&result_of(&case["result"])), case["body"], "{}", case["name"]);
        }
    }

    #[test]
    fn an_exit_has_a_code_and_no_signal() {
        let mut result =
            ExecResult { exit_code: 3, stdout: output(b"hi\n"), stderr: output(b""), ..result(End::Exited) };
        result.replayed = true;
        let expected = json!({
            "exec_id": "e-1", "end": "exited", "exit_code": 3, "signal": null,
            "stdout": "hi\n", "stdout_encoding": "utf-8", "stdout_truncated": false, "stdout_total_bytes": 3,
            "stderr": "", "stderr_encoding": "utf-8", "stderr_truncated": false, "stderr_total_bytes": 0,
            "queue_ms": 1.234, "spawn_ms": 0.9, "run_ms": 5000.001, "replayed": true,
        });
        assert_eq!(encoded(&result), expected);
    }

    #[test]
    fn every_other_end_has_a_signal_unless_it_never_started() {
        for (end, name) in [
            (End::Signalled, "signalled"),
            (End::Deadline, "deadline"),
            (End::OomKilled, "oom_killed"),
            (End::Cancelled, "cancelled"),
        ] {
            let killed = encoded(&ExecResult { signal: 9, ..result(end) });
            assert_eq!(
                (&killed["end"], &killed["signal"], &killed["exit_code"]),
                (&json!(name), &json!(9), &json!(null))
            );
            assert_eq!(encoded(&result(end))["signal"], json!(null));
        }
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64() {
        let answer = encoded(&ExecResult { stdout: output(b"\xff\x00"), ..result(End::Exited) });
        assert_eq!((&answer["stdout"], &answer["stdout_encoding"]), (&json!("/wA="), &json!("base64")));
    }

    #[test]
    fn a_running_exec_has_no_end_yet() {
        let running = ExecSummary { exec_id: "e-1".into(), running: true, ..Default::default() };
        let ended = ExecSummary { exec_id: "e-2".into(), ended_at_ms: 7, ..Default::default() };
        let list: Value =
            serde_json::from_slice(&encode_list(&ListResponse { execs: vec![running, ended] })).unwrap();
        assert_eq!((&list["execs"][0]["end"], &list["execs"][0]["exit_code"]), (&json!(null), &json!(null)));
        assert_eq!(
            (&list["execs"][0]["ended_at_ms"], &list["execs"][1]["ended_at_ms"]),
            (&json!(null), &json!(7))
        );
    }
}
