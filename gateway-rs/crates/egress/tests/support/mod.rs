//! An egress replica between fakes, all over real sockets: a feed, relays, a name server, servers outside.
//!
//! `Rig::start().await` is a replica that reaches the loopback addresses of 127.0.0.0/8, but those of 127.9.0.0/16.
#![allow(dead_code, unused_imports, reason = "each test crate uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

#[path = "../../../gateway/tests/support/clock.rs"]
pub mod clock;
pub mod feed;
pub mod names;
pub mod outside;
pub mod relay;
#[path = "../../../gateway/tests/support/serve.rs"]
pub mod serve;
pub mod tls;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use egress::{Running, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use wire::egress::{Assignment, Limits, Mode, Policy, PortRange, Rule};

pub use feed::Feed;
pub use names::Names;
pub use relay::{Program, Relay};

/// A directory of its own for each rig; removed with it.
#[derive(Debug)]
pub struct Folder(PathBuf);

#[allow(clippy::new_without_default, reason = "each is another")]
impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let name = format!("rollbox-eg-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by an earlier process with the same process id.
                Err(taken) => assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists, "{taken}"),
            }
        }
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.sock"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The file of the key that the fake feed asks for.
pub const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/feed.key");

/// A running replica with its fakes.
pub struct Rig {
    pub folder: Folder,
    pub feed: Feed,
    pub names: Names,
    pub running: Option<Running>,
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The same with further settings, by their names after `ROLLBOX_EGRESS_`.
    pub async fn with(settings: &[(&str, &str)]) -> Self {
        let (folder, names) = (Folder::new(), Names::listen().await);
        let feed = Feed::listen(&folder.socket("feed"));
        let mut variables: HashMap<String, String> = [
            ("FEED_URL", format!("unix:{}", folder.socket("feed").display())),
            ("FEED_KEY_FILE", KEY.to_owned()),
            ("ID", "egress-0".to_owned()),
            ("LISTEN", folder.socket("admin").display().to_string()),
            ("ALLOWED_PRIVATE_CIDRS", "127.0.0.0/12".to_owned()),
            ("BLOCKED_CIDRS", "127.32.0.0/16".to_owned()),
            ("DNS_SERVERS", names.address.to_string()),
        ]
        .map(|(name, value)| (format!("ROLLBOX_EGRESS_{name}"), value))
        .into();
        let further =
            settings.iter().map(|(name, value)| (format!("ROLLBOX_EGRESS_{name}"), (*value).to_owned()));
        variables.extend(further);
        let settings = Settings::read(|name| variables.get(name).cloned()).unwrap();
        let running = egress::start(settings).await.unwrap();
        Self { folder, feed, names, running: Some(running) }
    }

    /// The whole answer of its probes and metrics.
    pub async fn get(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.folder.socket("admin")).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Assigns a sandbox under a policy, and waits until its link is up.
    pub async fn sandbox(&self, id: &str, policy: &Policy) -> Relay {
        let mut relay = Relay::listen(&self.folder.socket(id));
        self.feed.assign(self.assignment(id, policy, 1), std::slice::from_ref(policy));
        relay.linked().await;
        self.feed.applied(id, 1).await;
        relay
    }

    pub fn assignment(&self, id: &str, policy: &Policy, revision: u64) -> Assignment {
        Assignment {
            sandbox_id: id.to_owned(),
            address: format!("unix:{}", self.folder.socket(id).display()),
            generation: 1,
            owner: "alice".to_owned(),
            token: format!("token-{id}"),
            policy_digest: policy.digest.clone(),
            revision,
            moved: false,
        }
    }

    /// Switches a sandbox to a policy; returns how many connections were cut for it.
    pub async fn switch(&self, id: &str, policy: &Policy, revision: u64) -> u32 {
        self.feed.assign(self.assignment(id, policy, revision), std::slice::from_ref(policy));
        self.feed.applied(id, revision).await
    }
}

/// A policy of mode `RULES` that allows these hosts, on any port.
pub fn allows(hosts: &[&str]) -> Policy {
    let allow = hosts.iter().map(|host| any_port(rule(host))).collect();
    Policy { allow, ..policy("packages", Mode::Rules) }
}

/// A policy of mode `OPEN` that denies these hosts.
pub fn denies(hosts: &[&str]) -> Policy {
    Policy { deny: hosts.iter().map(|host| rule(host)).collect(), ..policy("swe-eval", Mode::Open) }
}

pub fn offline() -> Policy {
    policy("offline", Mode::Offline)
}

pub fn policy(name: &str, mode: Mode) -> Policy {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let digest = format!("digest-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Policy { digest, name: name.to_owned(), mode: mode.into(), ..Policy::default() }
}

pub fn limited(policy: Policy, limits: Limits) -> Policy {
    Policy { limits: Some(limits), ..policy }
}

/// A rule for a host, or for a network where it has a slash.
pub fn rule(host: &str) -> Rule {
    let id = format!("rule {host}");
    match host.contains('/') {
        true => Rule { id, cidr: host.to_owned(), ..Rule::default() },
        false => Rule { id, host: host.to_owned(), ..Rule::default() },
    }
}

pub fn any_port(rule: Rule) -> Rule {
    Rule { ports: vec![PortRange { first: 1, last: 65535 }], ..rule }
}
