//! A gateway between fakes: sidecars, a route feed, a control plane, all over real sockets.
//!
//! `Rig::new().sandbox("sb-1").start().await` is a gateway that knows one sandbox; every fake is a field.
#![allow(dead_code, reason = "each test crate uses its own part")]

pub mod client;
pub mod clock;
pub mod controlplane;
pub mod creates;
pub mod feed;
pub mod files;
pub mod ports;
pub mod proxy;
pub mod running;
pub mod serve;
pub mod sidecar;
pub mod socket;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use gateway::{Running, Settings};
use serde_json::{Value, json};
use token::{Claims, Signer};

pub use client::{Answer, Client};
pub use controlplane::ControlPlane;
pub use feed::Feed;
pub use sidecar::Sidecar;

/// 2100-01-01: no test token expires while the tests run.
pub const FAR_S: u64 = 4_102_444_800;

pub fn signer() -> Signer {
    Signer::from_seed([7; 32])
}

pub fn token_of(sandbox_id: &str, owner: &str, scopes: &[&str]) -> String {
    signer().sign(&Claims {
        sandbox_id: sandbox_id.into(),
        owner: owner.into(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>().into(),
        expires_at_s: FAR_S,
        settings: None,
    })
}

/// A directory of its own for each rig; removed with it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let name = format!("rollbox-gw-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
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

/// The set-up of a gateway and its fakes.
pub struct Rig {
    folder: Folder,
    sandboxes: Vec<String>,
    variables: HashMap<String, String>,
    feed: bool,
    controlplane: bool,
}

/// A running gateway with its fakes.
pub struct Started {
    pub folder: Folder,
    pub sidecars: HashMap<String, Sidecar>,
    pub feed: Option<Feed>,
    pub controlplane: Option<ControlPlane>,
    pub client: Client,
    pub running: Option<Running>,
}

impl Rig {
    #[allow(clippy::new_without_default, reason = "a builder")]
    pub fn new() -> Self {
        Self {
            folder: Folder::new(),
            sandboxes: Vec::new(),
            variables: HashMap::new(),
            feed: true,
            controlplane: true,
        }
    }

    pub fn sandbox(mut self, id: &str) -> Self {
        self.sandboxes.push(id.to_owned());
        self
    }

    /// Sets `ROLLBOX_GATEWAY_{name}`.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.insert(format!("ROLLBOX_GATEWAY_{name}"), value.to_string());
        self
    }

    /// The socket path for a fake of this name.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.socket(name)
    }

    pub fn without_feed(mut self) -> Self {
        self.feed = false;
        self
    }

    pub fn without_controlplane(mut self) -> Self {
        self.controlplane = false;
        self
    }

    /// The environment variables of a gateway with these fakes.
    pub fn environment(&self) -> HashMap<String, String> {
        let unix = |name: &str| format!("unix:{}", self.folder.socket(name).display());
        let key = self.folder.0.join("settings.key");
        std::fs::write(&key, [7; 32]).unwrap();
        let mut variables = self.variables.clone();
        for (name, value) in [
            ("LISTEN", "127.0.0.1:0".to_owned()),
            ("TOKEN_PUBLIC_KEY", signer().public_key()),
            ("ROUTES_URL", unix("routes")),
            ("CONTROLPLANE_URL", unix("api")),
            ("SETTINGS_KEY_FILE", key.display().to_string()),
        ] {
            variables.entry(format!("ROLLBOX_GATEWAY_{name}")).or_insert(value);
        }
        variables
    }

    pub async fn start(self) -> Started {
        let variables = self.environment();
        let settings = Settings::read(|name| variables.get(name).cloned()).unwrap();
        let sidecars: HashMap<String, Sidecar> =
            self.sandboxes.iter().map(|id| (id.clone(), Sidecar::listen(&self.folder.socket(id)))).collect();
        let feed = self.feed.then(|| {
            let feed = Feed::listen(&self.folder.socket("routes"));
            for id in &self.sandboxes {
                feed.know(id, &self.folder.socket(id), 1);
            }
            feed
        });
        let controlplane = self.controlplane.then(|| ControlPlane::listen(&self.folder.socket("api")));
        let running = gateway::start(settings).await.unwrap();
        let client = Client::new(running.address());
        if feed.is_some() {
            client.until_ready().await;
        }
        Started { folder: self.folder, sidecars, feed, controlplane, client, running: Some(running) }
    }
}

impl Started {
    pub fn sidecar(&self, id: &str) -> &Sidecar {
        &self.sidecars[id]
    }

    pub fn feed(&self) -> &Feed {
        self.feed.as_ref().unwrap()
    }

    pub fn controlplane(&self) -> &ControlPlane {
        self.controlplane.as_ref().unwrap()
    }

    /// Runs a command of the fake sidecar as the sandbox's owner.
    pub async fn run(&self, id: &str, command: &str) -> Answer {
        self.exec(id, &json!({"command": command})).await
    }

    pub async fn exec(&self, id: &str, body: &Value) -> Answer {
        self.client.exec(id, &token_of(id, "alice", &["exec"]), body.to_string()).await
    }
}
