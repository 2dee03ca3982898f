//! The readiness push: tells the control plane that the sandbox is ready, or that it will never be. One small POST,
//! retried until it is acknowledged.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};
use wire::Problem;

use crate::log;
use crate::settings::{Endpoint, Settings};

const PATH: &str = "/v1/ready";
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for a status line.
const MAX_STATUS_BYTES: u64 = 64;

/// When the steps of the start were done, in microseconds since the sidecar's start.
#[derive(Debug, Clone, Copy)]
pub struct BootTimes {
    /// The target's process was found.
    pub target_found_us: u64,
    /// Its namespaces were entered.
    pub entered_us: u64,
    /// A command had run there.
    pub probed_us: u64,
}

/// The body that reports readiness.
pub fn ready(settings: &Settings, kernel: &str, boot: BootTimes) -> Value {
    let mut body = json!({
        "sandbox_id": settings.sandbox_id,
        "kernel": kernel,
        "boot_us": {"target_found": boot.target_found_us, "entered": boot.entered_us, "probed": boot.probed_us},
    });
    if let Some(address) = &settings.advertise {
        body["address"] = json!(address);
    }
    body
}

/// The body that reports a failed start.
pub fn failure(settings: &Settings, problem: &Problem) -> Value {
    json!({
        "sandbox_id": settings.sandbox_id,
        "failure": {"code": problem.code.name(), "detail": problem.detail},
    })
}

/// What the status of an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Done,
    Refused,
    Again,
}

/// Pushes `body` until it is acknowledged (true) or refused for good (false). Never ends otherwise: the caller decides
/// how long to try.
pub async fn push(settings: &Settings, body: &Value) -> bool {
    let request = request(&settings.ready_token, &body.to_string());
    let mut pause = FIRST_PAUSE;
    loop {
        let answer = timeout(ATTEMPT_TIMEOUT, attempt(&settings.ready_url, request.as_bytes())).await;
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match answer.as_ref().map_or(Verdict::Again, |status| verdict(*status)) {
            Verdict::Done => return true,
            Verdict::Refused => {
                log::event("readiness_refused", &[("status", &answer.unwrap_or_default())]);
                return false;
            }
            Verdict::Again if pause >= LONGEST_PAUSE => {
                let reason = answer.map_or_else(|err| err.to_string(), |status| format!("status {status}"));
                log::event("readiness_retry", &[("reason", &reason)]);
            }
            Verdict::Again => {}
        }
        sleep(jittered(pause, random())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A 4xx status is final, apart from 408 (timeout) and 429 (too many requests).
fn verdict(status: u16) -> Verdict {
    match status {
        200..=299 => Verdict::Done,
        408 | 429 => Verdict::Again,
        400..=499 => Verdict::Refused,
        _ => Verdict::Again,
    }
}

/// Between half and all of `pause`, so that a thousand sandboxes which lost the same control plane retry spread out.
fn jittered(pause: Duration, random: u64) -> Duration {
    pause / 2 + (pause / 2).mul_f64((random % 1024) as f64 / 1024.0)
}

/// Good enough for jitter; seeded by the operating system.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

fn request(token: &str, body: &str) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: rollbox\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn attempt(endpoint: &Endpoint, request: &[u8]) -> io::Result<u16> {
    match endpoint {
        Endpoint::Unix(path) => converse(UnixStream::connect(path).await?, request).await,
        Endpoint::Tcp(address) => converse(TcpStream::connect(address).await?, request).await,
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> io::Result<u16> {
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.take(MAX_STATUS_BYTES).read_to_end(&mut answer).await?;
    status(&answer).ok_or_else(|| io::Error::other("the answer is not HTTP/1.1"))
}

fn status(answer: &[u8]) -> Option<u16> {
    let digits = answer.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_means_done_again_or_never() {
        for (code, expected) in [
            (200, Verdict::Done),
            (204, Verdict::Done),
            (401, Verdict::Refused),
            (408, Verdict::Again),
            (429, Verdict::Again),
            (503, Verdict::Again),
        ] {
            assert_eq!(verdict(code), expected, "{code}");
        }
    }

    #[test]
    fn the_status_line_is_read_and_anything_else_refused() {
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n"), Some(204));
        assert_eq!(status(b"HTTP/1.0 503 "), Some(503));
        assert_eq!(status(b"SSH-2.0-x"), None);
        assert_eq!(status(b"HTTP/1.1 2"), None);
    }

    #[test]
    fn pauses_are_spread_over_their_upper_half() {
        let pause = Duration::from_secs(4);
        assert_eq!(jittered(pause, 0), pause / 2);
        assert!((0..5000).all(|random| (pause / 2..=pause).contains(&jittered(pause, random))));
    }

    #[test]
    fn the_request_carries_credential_and_length() {
        let request = request("tok", "{}");
        assert!(request.starts_with("POST /v1/ready HTTP/1.1\r\n"));
        assert!(
            request.contains("\r\nAuthorization: Bearer tok\r\n")
                && request.ends_with("Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        );
    }
}
