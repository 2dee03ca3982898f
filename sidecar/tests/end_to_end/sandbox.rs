//! A sandbox without an engine: the real target in its own namespaces, the real sidecar beside it, and a client.

use std::collections::HashMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use token::{Claims, Signer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UnixListener, UnixStream};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use wire::Problem;
use wire::agent::agent_client::AgentClient;
use wire::agent::{CancelAllRequest, CancelRequest, CancelledAll, ExecRequest, ExecResult};

pub const SANDBOX_ID: &str = "sb-test";
pub const LIMIT: Duration = Duration::from_secs(60);

/// Panics unless at least one of three attempts takes less than `limit`: a busy machine may stall at times.
pub async fn within(limit: Duration, attempt: impl AsyncFn()) {
    let mut times = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        attempt().await;
        times.push(began.elapsed());
        if began.elapsed() < limit {
            return;
        }
    }
    panic!("not within {limit:?}: {times:?}");
}

/// Polls until `count` returns `wanted` or more. It may take any time as long as the count grows.
pub async fn grows_to(wanted: u64, count: impl AsyncFn() -> u64) {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let now = count().await;
        if now >= wanted {
            return;
        }
        if now > before {
            (before, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < LIMIT, "the count stays at {now} instead of {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub const SEED: [u8; 32] = [7; 32];
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// As in the gateway: streams that are not read do not block the others.
const WINDOW_BYTES: u32 = 256 << 10;
/// The capabilities that engines leave a container by default.
const CAPABILITIES: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

pub struct Sandbox {
    pub client: AgentClient<Channel>,
    pub readiness: Value,
    pub credential: String,
    pub sidecar: Owned,
    pub directory: TempDir,
    _target: Owned,
}

impl Sandbox {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further settings of the sidecar, each named without its prefix.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_after(settings, "true").await
    }

    /// A sandbox whose image has no users and no groups.
    pub async fn start_without_users() -> Self {
        let hide = "mount --bind /dev/null /etc/passwd && mount --bind /dev/null /etc/group";
        Self::start_after(&[], hide).await
    }

    /// A sandbox whose main process may open `most` files.
    pub async fn start_with_descriptors(most: u32) -> Self {
        Self::start_after(&[], &format!("ulimit -Sn {most}")).await
    }

    /// With the sidecar in the target's network, as on every backend: commands then share its loopback. What the test
    /// itself connects to is still its own.
    pub async fn start_in_one_network(settings: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().unwrap();
        Self::start_in(directory, settings, "ip link set lo up", true).await
    }

    /// Runs `prepare` in the target's namespaces before its main process.
    async fn start_after(settings: &[(&str, &str)], prepare: &str) -> Self {
        Self::start_in(TempDir::new().unwrap(), settings, prepare, false).await
    }

    async fn start_in(
        directory: TempDir,
        settings: &[(&str, &str)],
        prepare: &str,
        one_network: bool,
    ) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests make namespaces and therefore need root");
        open_to_all(directory.path());
        let binary = directory.path().join("target");
        copy(env!("CARGO_BIN_EXE_rollbox-target").as_ref(), &binary);
        let ready = UnixListener::bind(directory.path().join("ready.sock")).unwrap();
        let target = target(&binary, directory.path(), prepare);
        let network = if one_network { Some(network(&target).await) } else { None };
        let mut command = sidecar_in(network.as_deref(), &binary, directory.path(), settings);
        let sidecar = Owned(command.spawn().unwrap());
        let (credential, readiness) = tokio::time::timeout(LIMIT, readiness(&ready)).await.unwrap();
        let listen = settings.iter().find_map(|(name, value)| (*name == "LISTEN").then_some(*value));
        let channel = match listen.and_then(|listen| listen.strip_prefix("tcp:")) {
            Some(address) => Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy(),
            None => connect(directory.path().join("agent.sock")).await,
        };
        let client = AgentClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self { client, readiness, credential, sidecar, directory, _target: target }
    }

    pub async fn exec(&self, request: ExecRequest) -> Result<ExecResult, Problem> {
        let answer = self.client.clone().exec(signed(request)).await;
        answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
    }

    /// Runs a shell command that must not fail; returns its output.
    pub async fn sh(&self, command: &str) -> String {
        let result = self.exec(shell(command)).await.unwrap();
        let stderr = String::from_utf8_lossy(&result.stderr.as_ref().unwrap().data).into_owned();
        assert_eq!((result.end, result.exit_code), (1, 0), "{command}: {stderr}");
        text(&result)
    }

    pub async fn cancel(&self, exec_id: &str) -> Result<ExecResult, Problem> {
        let answer = self.client.clone().cancel(signed(CancelRequest { exec_id: exec_id.to_owned() })).await;
        answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
    }

    pub async fn cancel_all(&self) -> CancelledAll {
        self.client.clone().cancel_all(signed(CancelAllRequest {})).await.unwrap().into_inner()
    }

    /// Waits for the sidecar to end; returns its exit status.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = async {
            loop {
                if let Some(status) = self.sidecar.0.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, ended).await.unwrap()
    }

    /// The sidecar's peak memory usage.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.sidecar.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Waits until `command` prints `expected`.
    pub async fn until(&self, command: &str, expected: &str) {
        let reached = async {
            while self.sh(command).await != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(LIMIT, reached).await.is_ok(), "{command} did not become {expected:?}");
    }
}

/// A child process that is killed on drop, also when a test fails during its start.
pub struct Owned(pub Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // The whole group, since `unshare` is only the parent of the target.
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Copies a binary in a process of its own: a child that another thread forks meanwhile would have a copy that this
/// process writes open until it runs its own program, and what is open for writing cannot be run (ETXTBSY).
fn copy(source: &Path, binary: &Path) {
    assert!(Command::new("cp").args([source, binary]).status().unwrap().success());
}

fn target(binary: &Path, directory: &Path, prepare: &str) -> Owned {
    let child = Command::new("unshare")
        .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc"])
        .args(["sh", "-c", &format!("{prepare} && exec \"$@\""), "sh", "setpriv"])
        .args(["--bounding-set", CAPABILITIES, "--inh-caps=-all"])
        .arg(binary)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("FROM", "image")
        .env("HOME", "/root")
        .current_dir(directory)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    Owned(child.unwrap())
}

/// The target's network, once it has one of its own.
async fn network(target: &Owned) -> String {
    let path = format!("/proc/{}/ns/net", target.0.id());
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    while std::fs::read_link(&path).unwrap() == own {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    path
}

pub fn sidecar(binary: &Path, directory: &Path, settings: &[(&str, &str)]) -> Command {
    sidecar_in(None, binary, directory, settings)
}

fn sidecar_in(network: Option<&str>, binary: &Path, directory: &Path, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(if network.is_some() { "nsenter" } else { "prlimit" });
    command.args(network.map(|path| [format!("--net={path}"), "prlimit".to_owned()]).into_iter().flatten());
    // Starts with the limit of open files that services often have.
    command.args(["--nofile=1024:", env!("CARGO_BIN_EXE_rollbox-sidecar")]);
    let unix = |name: &str| format!("unix:{}", directory.join(name).display());
    let defaults = [
        ("SANDBOX_ID", SANDBOX_ID.to_owned()),
        ("LISTEN", unix("agent.sock")),
        ("READY_URL", unix("ready.sock")),
        ("READY_TOKEN", "ready-credential".to_owned()),
        ("TOKEN_PUBLIC_KEY", Signer::from_seed(SEED).public_key()),
        ("TARGET_COMMAND", binary.display().to_string()),
    ];
    for (name, value) in
        defaults.iter().map(|(name, value)| (*name, value.as_str())).chain(settings.iter().copied())
    {
        command.env(format!("ROLLBOX_SIDECAR_{name}"), value);
    }
    command.stdin(Stdio::null()).process_group(0);
    command
}

fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Answers the first readiness push with an error (the sidecar must retry) and the second with success.
pub async fn readiness(listener: &UnixListener) -> (String, Value) {
    push(listener, "503 Service Unavailable").await;
    push(listener, "204 No Content").await
}

pub async fn push(listener: &UnixListener, answer: &str) -> (String, Value) {
    let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        // A sidecar that got no answer in time retries.
        if let Some(pushed) = pushed(&mut stream).await
            && stream.write_all(answer.as_bytes()).await.is_ok()
        {
            return pushed;
        }
    }
}

/// `None`: the sidecar gave the push up before it was complete.
async fn pushed(stream: &mut UnixStream) -> Option<(String, Value)> {
    let (mut text, mut chunk) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        text.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(body) = serde_json::from_str(body) else { continue };
        let credential = head.lines().find_map(|line| line.strip_prefix("Authorization: ")).unwrap();
        return Some((credential.to_owned(), body));
    }
}

/// A TCP address that no other process gets: its port is below the kernel's ephemeral ports, and an abstract socket
/// name, which only one process can bind, reserves it while this process lives.
pub fn free_address(ip: &str) -> String {
    use std::os::unix::net::{SocketAddr, UnixListener};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + u16::try_from(std::process::id() % 15_000).unwrap();
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        let name = SocketAddr::from_abstract_name(format!("rollbox-test-port-{port}")).unwrap();
        let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
        std::mem::forget(claim);
        let address = std::net::SocketAddr::new(ip.parse().unwrap(), port);
        // Tested as the sidecar binds it (without SO_REUSEADDR), which fails while connections that have just ended
        // remain.
        if TcpSocket::new_v4().unwrap().bind(address).is_ok() {
            return address.to_string();
        }
    }
}

async fn connect(path: PathBuf) -> Channel {
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://sidecar")
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(256 * WINDOW_BYTES);
    endpoint.connect_with_connector(connector).await.unwrap()
}

pub fn token(sandbox_id: &str, lifetime_s: i64) -> String {
    minted(sandbox_id, lifetime_s, "exec", None)
}

/// A token for another scope.
pub fn scoped(scope: &str) -> String {
    minted(SANDBOX_ID, 600, scope, None)
}

/// A token that promises the settings with this digest.
pub fn promising(digest: &str) -> String {
    minted(SANDBOX_ID, 600, "exec", Some(digest.into()))
}

fn minted(sandbox_id: &str, lifetime_s: i64, scope: &str, settings: Option<std::sync::Arc<str>>) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    Signer::from_seed(SEED).sign(&Claims {
        sandbox_id: sandbox_id.into(),
        owner: "tester".into(),
        scopes: vec![scope.to_owned()].into(),
        expires_at_s: now.saturating_add_signed(lifetime_s),
        settings,
    })
}

pub fn signed<T>(message: T) -> Request<T> {
    with_token(message, &token(SANDBOX_ID, 600))
}

pub fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("authorization", MetadataValue::try_from(format!("Bearer {token}")).unwrap());
    request
}

pub fn problem(status: &Status) -> Problem {
    Problem::decode(status.details()).unwrap_or_else(|| panic!("no problem in {status:?}"))
}

/// A request with a fresh id.
pub fn argv(argv: &[&str]) -> ExecRequest {
    ExecRequest {
        exec_id: fresh_id(),
        argv: argv.iter().map(|text| (*text).to_owned()).collect(),
        ..Default::default()
    }
}

/// A request with a fresh id.
pub fn shell(command: &str) -> ExecRequest {
    ExecRequest { exec_id: fresh_id(), command: command.to_owned(), ..Default::default() }
}

pub fn env(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn fresh_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("e-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn text(result: &ExecResult) -> String {
    String::from_utf8_lossy(&result.stdout.as_ref().unwrap().data).into_owned()
}
