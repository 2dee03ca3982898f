//! Bodies of `POST .../exec` and `.../execs`: what the gateway accepts is accepted by the sidecar.
#![no_main]

use sidecar::request::{Call, Command};
use wire::agent::ExecRequest;
use wire::{Code, Problem};

fn check(bytes: &[u8]) {
    let id = || "e-1".to_owned();
    taken(gateway::exec::decode(bytes, id), Call::Exec);
    taken(gateway::exec::decode_start(bytes, id), Call::Start);
}

fn taken(decoded: Result<ExecRequest, Problem>, call: Call) {
    match decoded.map(|request| Command::new(request, call)) {
        Ok(Ok(command)) => assert!(command.kept_output_bytes().iter().all(|bytes| *bytes <= 16 << 20)),
        Ok(Err(problem)) => panic!("the sidecar refuses what the gateway accepts: {problem}"),
        Err(problem) => {
            assert!(matches!(problem.code, Code::InvalidArgument | Code::PayloadTooLarge), "{problem}")
        }
    }
}

fuzz::target!(
    [
        br#"{"exec_id": "e-1", "argv": ["a", "b"], "cwd": "/", "env": {"A": "1"}, "user": "a:b", "umask": 18}"#.as_slice(),
        br#"{"command": "a", "stdin": "aGk=", "stdin_encoding": "base64", "timeout_ms": 1, "keep": "head", "stdin_open": true}"#,
        br#"{"command": "a", "max_output_bytes": 9, "output_waits": true, "terminal": {"columns": 80, "rows": 24}}"#,
        br#"{"command": "a", "max_stderr_bytes": 9, "keep": "tail"}"#,
    ],
    check
);
