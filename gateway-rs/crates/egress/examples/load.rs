//! Measures `rollbox-egress`, a process of its own, between fakes of this one: what a connection through it costs, how
//! much it moves, how soon a policy is in force, and what idle links take. Prints one object in JSON.
//!
//! `cargo build --release --bin rollbox-egress && cargo run --release --example load`
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement ends where its set-up fails"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use support::{Feed, Folder, Names, Relay, allows, any_port, rule};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wire::egress::{Assignment, Policy};

const CONNECTIONS: usize = 2000;
const DOWNLOAD_BYTES: usize = 1 << 30;
const ROUNDS: usize = 5;
const SANDBOXES: usize = 1000;
const POLICIES: usize = 50;
const SWITCHES: usize = 300;
const AT_ONCE: usize = 200;

/// The process, ended with this value.
struct Egress(Child);

impl Drop for Egress {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Egress {
    fn start(folder: &Folder, names: &Names) -> Self {
        let program = std::env::current_exe().unwrap().parent().unwrap().join("../rollbox-egress");
        let child = Command::new(program)
            .env("ROLLBOX_EGRESS_FEED_URL", format!("unix:{}", folder.socket("feed").display()))
            .env(
                "ROLLBOX_EGRESS_FEED_KEY_FILE",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/feed.key"),
            )
            .env("ROLLBOX_EGRESS_LISTEN", folder.socket("admin"))
            .env("ROLLBOX_EGRESS_ALLOWED_PRIVATE_CIDRS", "127.0.0.0/8")
            .env("ROLLBOX_EGRESS_DNS_SERVERS", names.address.to_string())
            .env("ROLLBOX_EGRESS_MAX_NEW_CONNECTIONS_PER_SECOND", "100000")
            .env("ROLLBOX_EGRESS_LOG", "warn")
            .spawn();
        Self(child.unwrap())
    }

    fn resident_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }
}

#[tokio::main]
async fn main() {
    let (folder, names) = (Folder::new(), Names::listen().await);
    let feed = Feed::listen(&folder.socket("feed"));
    let egress = Egress::start(&folder, &names);
    feed.watched_by(1).await;
    let (echo, flood) = (echo().await, flood().await);
    names.set("a.test", &[&["127.0.0.1"]]);
    let policy = allows(&["a.test"]);
    let mut relay = Relay::listen(&folder.socket("sb-0"));
    feed.assign(assignment(&folder, "sb-0", &policy, 1), std::slice::from_ref(&policy));
    relay.linked().await;
    feed.applied("sb-0", 1).await;
    let set_up = set_up(&relay, echo).await;
    let moved = moved(&relay, flood).await;
    drop(relay);
    let (idle, relays) = idle(&folder, &feed, &egress).await;
    let switches = switches(&folder, &feed).await;
    drop(relays);
    println!("{}", json!({"set_up": set_up, "moved": moved, "idle": idle, "switches": switches}));
}

fn assignment(folder: &Folder, id: &str, policy: &Policy, revision: u64) -> Assignment {
    Assignment {
        sandbox_id: id.to_owned(),
        address: format!("unix:{}", folder.socket(id).display()),
        generation: 1,
        owner: "alice".to_owned(),
        token: format!("token-{id}"),
        policy_digest: policy.digest.clone(),
        revision,
        moved: false,
    }
}

/// A server that sends back what it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
            });
        }
    });
    address
}

/// A server that sends a download to whoever sends a byte.
async fn flood() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let piece = vec![7; 256 << 10];
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.read_u8().await);
            for _ in 0..DOWNLOAD_BYTES / piece.len() {
                stream.write_all(&piece).await.unwrap();
            }
        }
    });
    address
}

/// From nothing to the first byte of an answer, in ms: directly, and through egress by name.
async fn set_up(relay: &Relay, echo: SocketAddr) -> Value {
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let began = Instant::now();
        let mut stream = TcpStream::connect(echo).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"x").await.unwrap();
        stream.read_u8().await.unwrap();
        direct.push(ms(began.elapsed()));
        drop(stream);
        let began = Instant::now();
        let (mut program, head) = relay.connect(&format!("a.test:{}", echo.port())).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        program.send(b"x").await;
        program.exactly(1).await;
        through.push(ms(began.elapsed()));
        program.finish().await;
        program.rest_bytes().await;
    }
    json!({"direct": told(&mut direct), "egress": told(&mut through)})
}

/// MB/s of one download: directly, and through egress.
async fn moved(relay: &Relay, flood: SocketAddr) -> Value {
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    let mut space = vec![0; 256 << 10];
    for _ in 0..ROUNDS {
        let mut stream = TcpStream::connect(flood).await.unwrap();
        let began = Instant::now();
        stream.write_all(b"x").await.unwrap();
        let mut left = DOWNLOAD_BYTES;
        while left > 0 {
            left -= stream.read(&mut space).await.unwrap();
        }
        direct.push(rate(began.elapsed()));
        let (mut program, _) = relay.connect(&format!("a.test:{}", flood.port())).await;
        let began = Instant::now();
        program.send(b"x").await;
        let mut left = DOWNLOAD_BYTES;
        while left > 0 {
            left -= program.0.read(&mut space).await.unwrap();
        }
        through.push(rate(began.elapsed()));
    }
    json!({"direct": direct, "egress": through})
}

/// Memory of the process, in MiB: before and with idle links.
async fn idle(folder: &Folder, feed: &Feed, egress: &Egress) -> (Value, Vec<Relay>) {
    let before = egress.resident_mib();
    let policies: Vec<Policy> = (0..POLICIES).map(policy_of_many).collect();
    let mut relays: Vec<Relay> =
        (1..=SANDBOXES).map(|n| Relay::listen(&folder.socket(&format!("sb-{n}")))).collect();
    for number in 1..=SANDBOXES {
        let policy = &policies[number % POLICIES];
        feed.assign(assignment(folder, &format!("sb-{number}"), policy, 1), std::slice::from_ref(policy));
    }
    for relay in &mut relays {
        relay.linked().await;
    }
    for number in 1..=SANDBOXES {
        feed.applied(&format!("sb-{number}"), 1).await;
    }
    (
        json!({"before": before, "links": SANDBOXES, "policies": POLICIES, "with": egress.resident_mib()}),
        relays,
    )
}

/// As an index' preset is: thirty rules.
fn policy_of_many(number: usize) -> Policy {
    let mut policy = allows(&[]);
    policy.allow =
        (0..30).map(|rule_number| any_port(rule(&format!("*.r{rule_number}.p{number}.test")))).collect();
    policy
}

/// From the sending of a new policy to the report that it is in force, in ms: one at a time, and of many at once.
async fn switches(folder: &Folder, feed: &Feed) -> Value {
    let policies = [policy_of_many(0), policy_of_many(1)];
    let switch = async |id: String, revision: u64| {
        let policy = &policies[usize::try_from(revision).unwrap() % 2];
        feed.assign(assignment(folder, &id, policy, revision), std::slice::from_ref(policy));
        feed.applied(&id, revision).await;
    };
    let mut one = Vec::new();
    for number in 0..SWITCHES {
        let began = Instant::now();
        switch("sb-1".to_owned(), 2 + u64::try_from(number).unwrap()).await;
        one.push(ms(began.elapsed()));
    }
    let began = Instant::now();
    join_all((2..2 + AT_ONCE).map(|number| switch(format!("sb-{number}"), 2))).await;
    json!({"one": told(&mut one), "at_once": AT_ONCE, "all_ms": ms(began.elapsed())})
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}

fn rate(took: Duration) -> f64 {
    f64::from(u32::try_from(DOWNLOAD_BYTES / 1_000_000).unwrap()) / took.as_secs_f64()
}

fn told(values: &mut [f64]) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values[(values.len() * share / 100).min(values.len() - 1)];
    json!({"p50": at(50), "p95": at(95), "p99": at(99), "max": values[values.len() - 1], "n": values.len()})
}
