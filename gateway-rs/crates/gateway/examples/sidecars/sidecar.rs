//! The pods of this machine's addresses, and what the sidecar of each knows.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use token::{Verifier, bearer};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wire::Problem;
use wire::agent::{End, ExecRequest, ExecResult, HealthResponse, Output};

pub const KERNEL: &str = "Linux version 4.19.0-gvisor (played)";
/// As many commands are remembered for each sandbox, so that a repeated one is not run twice.
const REMEMBERED: usize = 256;
const SCOPE: &str = "exec";

/// All pods by address, and how much was asked of them.
#[derive(Debug, Default)]
pub struct Pods {
    by_address: Mutex<HashMap<Ipv4Addr, Arc<Sidecar>>>,
    verifier: Mutex<Option<Arc<Verifier>>>,
    pub ran: Arc<AtomicU64>,
}

impl Pods {
    pub fn at(&self, address: Ipv4Addr) -> Option<Arc<Sidecar>> {
        self.by_address.lock().unwrap().get(&address).cloned()
    }

    /// Puts a pod at an address, in the place of whatever was there.
    pub fn begin(&self, id: &str, address: Ipv4Addr, public_key: &str) -> Arc<Sidecar> {
        let sidecar = Arc::new(Sidecar::new(id, self.verifier(public_key), Arc::clone(&self.ran)));
        let before = self.by_address.lock().unwrap().insert(address, Arc::clone(&sidecar));
        before.inspect(|one| one.end.cancel());
        sidecar
    }

    /// Takes a pod away with its connections, unless another one has its address.
    pub fn end(&self, id: &str, address: Ipv4Addr) {
        let mut pods = self.by_address.lock().unwrap();
        if pods.get(&address).is_some_and(|one| one.id == id) {
            pods.remove(&address).inspect(|one| one.end.cancel());
        }
    }

    /// The node of a pod stands still: its connections stay open, and nothing answers any more.
    pub fn silence(&self, id: &str, address: Ipv4Addr) {
        self.at(address).filter(|one| one.id == id).inspect(|one| one.silence.cancel());
    }

    /// The sandboxes that have been acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.by_address
            .lock()
            .unwrap()
            .values()
            .filter(|one| one.acknowledged.load(Ordering::Relaxed))
            .count()
    }

    pub fn count(&self) -> usize {
        self.by_address.lock().unwrap().len()
    }

    /// One for all sandboxes of a control plane: they have the same key.
    fn verifier(&self, public_key: &str) -> Arc<Verifier> {
        let mut known = self.verifier.lock().unwrap();
        Arc::clone(known.get_or_insert_with(|| Arc::new(Verifier::new(public_key).unwrap())))
    }
}

pub fn address_of(stream: &TcpStream) -> Option<Ipv4Addr> {
    match stream.local_addr().ok()?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// One sandbox.
#[derive(Debug)]
pub struct Sidecar {
    pub id: String,
    pub acknowledged: AtomicBool,
    verifier: Arc<Verifier>,
    end: CancellationToken,
    silence: CancellationToken,
    born: Instant,
    running: AtomicU32,
    quiet_since: Mutex<Instant>,
    /// The commands by their ids, in order, with the moment of their end.
    runs: Mutex<Vec<(String, Instant)>>,
    ran: Arc<AtomicU64>,
}

impl Sidecar {
    fn new(id: &str, verifier: Arc<Verifier>, ran: Arc<AtomicU64>) -> Self {
        Self {
            id: id.to_owned(),
            acknowledged: AtomicBool::new(false),
            verifier,
            end: CancellationToken::new(),
            silence: CancellationToken::new(),
            born: Instant::now(),
            running: AtomicU32::new(0),
            quiet_since: Mutex::new(Instant::now()),
            runs: Mutex::default(),
            ran,
        }
    }

    /// Completes when the pod has ended.
    pub async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Completes when its node stands still.
    pub async fn silenced(&self) {
        self.silence.cancelled().await;
    }

    pub fn check(&self, authorization: Option<&[u8]>) -> Result<(), Problem> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        self.verifier.verify(bearer(authorization)?, now_s)?.allow(&self.id, SCOPE)
    }

    /// Runs `["sleep", SECONDS]` as long as that takes, all else in no time; says the sandbox's id. A command whose id
    /// is known is joined, or its answer given again.
    pub async fn exec(&self, request: ExecRequest) -> ExecResult {
        let takes = match request.argv.as_slice() {
            [sleep, seconds] if sleep == "sleep" => Duration::from_secs_f64(seconds.parse().unwrap_or(0.0)),
            _ => Duration::ZERO,
        };
        let (ends, replayed) = self.begun(&request.exec_id, takes);
        self.running.fetch_add(1, Ordering::Relaxed);
        let _leaving = Leaving(self);
        sleep_until(ends).await;
        let stdout = self.id.clone().into_bytes();
        let mut result = ExecResult {
            exec_id: request.exec_id,
            stdout: Some(Output { total_bytes: stdout.len() as u64, data: stdout, truncated: false }),
            stderr: Some(Output::default()),
            spawn_us: 300,
            run_us: takes.as_micros() as u64,
            replayed,
            ..ExecResult::default()
        };
        result.set_end(End::Exited);
        result
    }

    pub fn health(&self) -> HealthResponse {
        let running = self.running.load(Ordering::Relaxed);
        let quiet = if running > 0 { Duration::ZERO } else { self.quiet_since.lock().unwrap().elapsed() };
        HealthResponse {
            sandbox_id: self.id.clone(),
            kernel: KERNEL.to_owned(),
            uptime_ms: self.born.elapsed().as_millis() as u64,
            running_execs: running,
            acknowledged: self.acknowledged.load(Ordering::Relaxed),
            quiet_us: Some(quiet.as_micros() as u64),
        }
    }

    fn begun(&self, exec_id: &str, takes: Duration) -> (Instant, bool) {
        let mut runs = self.runs.lock().unwrap();
        if let Some((_, ends)) = runs.iter().find(|(id, _)| id == exec_id) {
            return (*ends, true);
        }
        if runs.len() >= REMEMBERED {
            runs.remove(0);
        }
        let ends = Instant::now() + takes;
        runs.push((exec_id.to_owned(), ends));
        self.ran.fetch_add(1, Ordering::Relaxed);
        (ends, false)
    }
}

/// Ends a call's part in what runs, also when its caller has left.
struct Leaving<'a>(&'a Sidecar);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        *self.0.quiet_since.lock().unwrap() = Instant::now();
    }
}
