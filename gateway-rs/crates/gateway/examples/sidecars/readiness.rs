//! The readiness push of a played sidecar: as the real one's, with its pauses, but on a connection of plain HTTP.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::sidecar::{KERNEL, Sidecar};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a sidecar pushes to (`HOST:PORT`), and what it shows and says there.
#[derive(Debug)]
pub struct Push {
    pub host: String,
    pub token: String,
    pub address: String,
}

/// Pushes until that is acknowledged, refused for good, or the pod has ended.
pub async fn push(sidecar: Arc<Sidecar>, push: Push) {
    tokio::select! {
        () = sidecar.ended() => {}
        () = acknowledged(&sidecar, &push) => {}
    }
}

async fn acknowledged(sidecar: &Sidecar, push: &Push) {
    let mut pause = FIRST_PAUSE;
    loop {
        match timeout(ATTEMPT_TIMEOUT, attempt(&sidecar.id, push)).await {
            Ok(Ok(status)) if (200..300).contains(&status) => {
                return sidecar.acknowledged.store(true, Ordering::Relaxed);
            }
            Ok(Ok(status)) if (400..500).contains(&status) && status != 408 && status != 429 => {
                return eprintln!("{}: the push was refused with {status}", sidecar.id);
            }
            _ => sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(id: &str, push: &Push) -> std::io::Result<u16> {
    let body = json!({"sandbox_id": id, "kernel": KERNEL, "boot_us": {"probed": 3}, "address": push.address})
        .to_string();
    let head = format!(
        "POST /v1/ready HTTP/1.1\r\nHost: rollbox\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        push.token,
        body.len()
    );
    let mut stream = TcpStream::connect(&push.host).await?;
    stream.write_all((head + &body).as_bytes()).await?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    let digits = std::str::from_utf8(&line[9..]).unwrap_or_default();
    digits.parse().map_err(|_| std::io::Error::other("the answer is not HTTP/1.1"))
}
