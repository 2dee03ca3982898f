//! What standard input orders, one JSON object a line:
//!
//! - `{"begin": ID, "address": IP, "ready": "HOST:PORT", "token": TOKEN, "key": PUBLIC_KEY}`: a pod runs there now
//! - `{"end": ID, "address": IP}`: it does not any more
//! - `{"silence": ID, "address": IP}`: its node stands still, and nothing there answers any more
//! - `{"tell": true}`: print `{"pods": N, "acknowledged": N, "ran": N}`

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::readiness::{Push, push};
use super::sidecar::Pods;

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Order {
    Begin { begin: String, address: Ipv4Addr, ready: String, token: String, key: String },
    End { end: String, address: Ipv4Addr },
    Silence { silence: String, address: Ipv4Addr },
    Tell { tell: bool },
}

/// Does what the lines say, until there are no more.
pub async fn follow(pods: Arc<Pods>, port: u16) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        match serde_json::from_str(&line).expect("an order") {
            Order::Begin { begin, address, ready, token, key } => {
                let sidecar = pods.begin(&begin, address, &key);
                let said = Push { host: ready, token, address: format!("http://{address}:{port}") };
                tokio::spawn(push(sidecar, said));
            }
            Order::End { end, address } => pods.end(&end, address),
            Order::Silence { silence, address } => pods.silence(&silence, address),
            Order::Tell { tell } => {
                assert!(tell, "it is only ever true");
                let ran = pods.ran.load(Ordering::Relaxed);
                println!(
                    "{}",
                    json!({"pods": pods.count(), "acknowledged": pods.acknowledged(), "ran": ran})
                );
            }
        }
    }
}
