//! The answers in HTTP to programs while there is no link: fixed ones.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::{Code, Problem};

/// How long a program may take to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// After its answer a program may send the rest of what it was sending. A socket that is closed over unread bytes
/// resets the connection, and the answer would be lost.
const DRAIN: Duration = Duration::from_secs(1);
const DRAIN_BYTES: usize = 64 << 10;
/// What changes that a sandbox is offline.
const KNOB: &str = "await sandbox.egress(POLICY), or rollbox egress set SANDBOX POLICY";

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No link has ever come: the sandbox's policy is `offline`.
    Offline,
    /// There was a link, and no other one came in time.
    Unavailable,
}

/// Sends a whole answer, and closes the connection.
pub(super) async fn answer(mut stream: TcpStream, bytes: &[u8]) {
    let mut piece = [0; 4096];
    let answered = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await
    };
    if !matches!(timeout(PATIENCE, answered).await, Ok(Ok(()))) {
        return;
    }
    let drained = async {
        let mut left = DRAIN_BYTES;
        while let Ok(count @ 1..) = stream.read(&mut piece).await
            && left > count
        {
            left -= count;
        }
    };
    // Whatever comes after that is lost on the program.
    let _ = timeout(DRAIN, drained).await;
}

impl Refusal {
    /// The answer in HTTP, also to what is none.
    pub(super) fn http(self) -> Vec<u8> {
        let knob = if self == Self::Offline { format!("; {KNOB}") } else { String::new() };
        http(&self.problem(), &knob)
    }

    fn problem(self) -> Problem {
        match self {
            Self::Offline => {
                let detail = "the network policy of this sandbox is `offline`: no connection is allowed";
                Problem::new(Code::EgressDenied, detail)
                    .with("policy", "offline")
                    .with("rule", "offline")
                    .with("knob", KNOB)
            }
            Self::Unavailable => {
                let detail = "the sandbox had a link to the platform's egress and lost it, and no other one came within 10 s";
                Problem::new(Code::EgressUnavailable, detail)
            }
        }
    }
}

/// The answer in HTTP; `knob` follows the sentence in its first line.
pub(super) fn http(problem: &Problem, knob: &str) -> Vec<u8> {
    let body = problem.to_json("", None).to_string();
    // The sentence stands in the place of `Forbidden`, as in answers of egress: most programs show that line of a refused
    // CONNECT, and hardly any its body.
    format!(
        "HTTP/1.1 {} {}{knob}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        problem.code.http(),
        problem.detail,
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_sentence_in_its_first_line_and_its_code_in_the_body() {
        for (refusal, line, code) in [
            (
                Refusal::Offline,
                "HTTP/1.1 403 the network policy of this sandbox is `offline`: ",
                "egress_denied",
            ),
            (Refusal::Unavailable, "HTTP/1.1 503 the sandbox had a link", "egress_unavailable"),
        ] {
            let answer = String::from_utf8(refusal.http()).unwrap();
            assert!(answer.starts_with(line), "{answer}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let line = head.lines().next().unwrap();
            assert!(line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{line}");
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["code"], code);
        }
    }
}
