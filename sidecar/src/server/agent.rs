//! The calls of `contract/agent.proto`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};
use wire::agent::agent_server::Agent;
use wire::agent::*;
use wire::{Code, Problem};

use super::ahead::{self, Ahead};
use super::attach::{Events, attach};
use super::files::{Answers, Files};
use super::ports;
use super::uses::Uses;
use super::{answer, egress};
use crate::bound::Bound;
use crate::files::call::Places;
use crate::leg::Legs;
use crate::ports::Ports;
use crate::problem::status;
use crate::process::supervise::{Context, Start, supervise};
use crate::process::{Cause, Process};
use crate::records::{Claim, Records};
use crate::relay::supervisor::Relay;
use crate::request::{Call, Command, Defaults, check_exec_id, invalid, size};
use crate::settings::Limits;
use crate::spawner::frame::Order;
use crate::usage;

const MAX_SIGNAL: u32 = 64;
/// A spawner that does not answer within this time is stuck; during a fork bomb each of its system calls waits for its
/// turn. Shorter than the control plane's own timeout (10 s), so that the control plane gets this error.
const PING_PATIENCE: Duration = Duration::from_secs(8);
/// The same for what somebody asks in order to see why a sandbox is slow: an answer that comes late is worth more.
const MEASURE_PATIENCE: Duration = Duration::from_secs(25);
const PROBE_TIMEOUT_MS: u64 = 30_000;
/// How long an interpreter that is started ahead may take to its greeting.
const GREETING_PATIENCE: Duration = Duration::from_secs(30);

type Answer<T> = Result<Response<T>, Status>;

/// The agent service of one sandbox. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sandbox_id: String,
    kernel: String,
    target_command: String,
    started: Instant,
    context: Arc<Context>,
    records: Mutex<Records>,
    ahead: Ahead,
    defaults: Mutex<Defaults>,
    /// Held while settings are bound.
    binding: tokio::sync::Mutex<()>,
    bound: Bound,
    draining: watch::Receiver<bool>,
    acknowledged: AtomicBool,
    ports: Ports,
    legs: Legs,
    relay: Option<Relay>,
    places: Places,
    limits: Limits,
    uses: Arc<Uses>,
}

/// The sandbox's identity and limits, as the agent reports them.
#[derive(Debug)]
pub struct Identity {
    /// The sandbox it serves.
    pub sandbox_id: String,
    /// `/proc/version` there.
    pub kernel: String,
    /// The target's binary, which is also the probe command.
    pub target_command: String,
    /// When the sidecar started.
    pub started: Instant,
    /// The ports that the platform itself listens on.
    pub own_ports: Vec<u16>,
    /// The relay; none where egress is not installed.
    pub relay: Option<Relay>,
    /// The limits that the sandbox was given.
    pub limits: Limits,
}

impl Service {
    /// An agent that accepts new work until `draining` is true.
    pub fn new(identity: Identity, context: Context, draining: watch::Receiver<bool>) -> Self {
        let Identity { sandbox_id, kernel, target_command, started, own_ports, relay, limits } = identity;
        let shared = Shared {
            sandbox_id,
            kernel,
            target_command,
            started,
            context: context.into(),
            records: Mutex::default(),
            ahead: Ahead::default(),
            defaults: Mutex::default(),
            binding: tokio::sync::Mutex::default(),
            bound: Bound::default(),
            draining,
            acknowledged: AtomicBool::new(false),
            ports: Ports::new(&own_ports),
            legs: Legs::default(),
            relay,
            places: Places::default(),
            limits,
            uses: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The counter of calls under way.
    pub fn uses(&self) -> Arc<Uses> {
        Arc::clone(&self.shared.uses)
    }

    /// The calls that wait for a leg.
    pub fn legs(&self) -> Legs {
        self.shared.legs.clone()
    }

    /// Whether the late settings are bound.
    pub fn bound(&self) -> Bound {
        self.shared.bound.clone()
    }

    /// Notes that the control plane has acknowledged the readiness push.
    pub fn acknowledge(&self) {
        self.shared.acknowledged.store(true, Ordering::Relaxed);
    }

    /// Runs the target's binary in the sandbox as a normal command, with `defaults`.
    ///
    /// # Errors
    /// The reason why no command can run there.
    pub async fn probe(&self, defaults: Defaults) -> Result<(), Problem> {
        let argv = vec![self.shared.target_command.clone(), "--probe".to_owned()];
        let request = ExecRequest {
            exec_id: "probe".to_owned(),
            argv,
            timeout_ms: PROBE_TIMEOUT_MS,
            ..ExecRequest::default()
        };
        let command = Command::new(request, Call::Start)?;
        let (process, start) = self.prepare(command, Call::Start, defaults, Instant::now());
        supervise(Arc::clone(&process), start, Arc::clone(&self.shared.context)).await;
        match process.ended().await? {
            ended if ended.end == End::Exited && ended.exit_code == 0 => Ok(()),
            ended => Err(Problem::new(Code::Internal, format!("the probe did not exit with 0: {ended:?}"))),
        }
    }

    /// Starts an interpreter for the first caller that asks for one, and waits until it takes cells.
    ///
    /// # Errors
    /// `unsupported`: the image cannot run it. `start_timeout`: it says nothing.
    pub async fn keep_interpreter(&self) -> Result<(), Problem> {
        let process = self.start_ahead(Defaults::default())?;
        let late = |_| Problem::new(Code::StartTimeout, "its pool's interpreter did not greet within 30 s");
        tokio::time::timeout(GREETING_PATIENCE, ahead::greeted(&process)).await.map_err(late)?
    }

    fn start_ahead(&self, defaults: Defaults) -> Result<Arc<Process>, Problem> {
        let mut command = Command::new(ahead::request(), Call::Ahead)?;
        // Its processes are found by this, also when it is killed beside the next one; no caller's id has a dot.
        command.exec_id = if defaults == Defaults::default() { "ahead." } else { "ahead.bound" }.to_owned();
        let (process, start) = self.prepare(command, Call::Ahead, defaults.clone(), Instant::now());
        self.shared.ahead.put(Arc::clone(&process), defaults);
        tokio::spawn(self.clone().own(Arc::clone(&process), start));
        Ok(process)
    }

    /// Starts the interpreter that waits for its caller again, with what was bound.
    fn renew_ahead(&self, defaults: &Defaults) -> Result<(), Problem> {
        if *defaults == Defaults::default() {
            return Ok(());
        }
        if let Some(former) = self.shared.ahead.withdraw() {
            former.stop(Cause::Cancelled);
            self.start_ahead(defaults.clone())?;
        }
        Ok(())
    }

    fn prepare(
        &self,
        command: Command,
        call: Call,
        defaults: Defaults,
        received: Instant,
    ) -> (Arc<Process>, Start) {
        let subscription = self.shared.context.link.subscribe();
        let process =
            Arc::new(Process::new(&command, call, &self.shared.context.output, subscription.id, unix_ms()));
        (process, Start { command, defaults, received, subscription })
    }

    /// Finds the process of a request, or starts it. The flag says whether it was known before.
    fn claim(&self, request: ExecRequest, call: Call) -> Result<(Arc<Process>, bool), Problem> {
        let received = Instant::now();
        let command = Command::new(request, call)?;
        let (exec_id, fingerprint) = (command.exec_id.clone(), command.fingerprint());
        let defaults = lock(&self.shared.defaults).clone();
        let mut start = None;
        let claim = self.records().claim(&exec_id, fingerprint, || {
            if let Some(process) = self.shared.ahead.take(fingerprint, &defaults) {
                process.give(&exec_id);
                return process;
            }
            let (process, prepared) = self.prepare(command, call, defaults, received);
            start = Some(prepared);
            process
        })?;
        match (claim, start) {
            (Claim::New(process), Some(start)) => {
                if *self.shared.draining.borrow() {
                    self.records().withdraw(&exec_id);
                    return Err(Problem::new(Code::Draining, "the sandbox is shutting down"));
                }
                tokio::spawn(self.clone().own(Arc::clone(&process), start));
                Ok((process, false))
            }
            (Claim::New(process), None) => Ok((process, false)),
            (Claim::Known(process), _) => Ok((process, true)),
        }
    }

    /// Owns a process until it ends, even if no caller waits for it any more.
    async fn own(self, process: Arc<Process>, start: Start) {
        supervise(Arc::clone(&process), start, Arc::clone(&self.shared.context)).await;
        match process.ended().await {
            Ok(_) => self.records().finish(process),
            Err(_) => self.records().withdraw(process.exec_id()),
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        lock(&self.shared.records)
    }

    fn find(&self, exec_id: &str) -> Result<Arc<Process>, Problem> {
        check_exec_id(exec_id)?;
        self.records().get(exec_id)
    }

    async fn run(&self, request: ExecRequest) -> Result<ExecResult, Problem> {
        let (process, known) = self.claim(request, Call::Exec)?;
        let replayed = known && !process.is_running();
        let _waiter = process.owner();
        let ended = process.ended().await?;
        Ok(answer::result(&process, &ended, replayed))
    }

    async fn begin(&self, request: ExecRequest) -> Result<Started, Problem> {
        let (process, replayed) = self.claim(request, Call::Start)?;
        let spawn_us = process.started().await?;
        Ok(Started { exec_id: process.exec_id().to_owned(), pid: process.pid(), spawn_us, replayed })
    }

    /// A command that has ended by then counts as closed input, since nothing reads it.
    async fn feed(&self, chunk: StdinChunk) -> Result<StdinAccepted, Problem> {
        let process = self.find(&chunk.exec_id)?;
        process.started().await?;
        let write = async { process.stdin.lock().await.write(chunk.offset, &chunk.data, chunk.eof).await };
        let closed = || Problem::new(Code::Conflict, format!("exec {} has ended", chunk.exec_id));
        let offset = tokio::select! {
            biased;
            written = write => written?,
            _ = process.ended() => return Err(closed()),
        };
        Ok(StdinAccepted { offset })
    }

    async fn signal_process(&self, request: SignalRequest) -> Result<SignalSent, Problem> {
        let SignalRequest { exec_id, signal, tree, command_id, spared } = request;
        if !(1..=MAX_SIGNAL).contains(&signal) {
            return Err(invalid("signal", &format!("signal {signal} is not within 1 and {MAX_SIGNAL}")));
        }
        let process = self.running(&exec_id).await?;
        if !command_id.is_empty() {
            self.shared.context.link.abandon(process.id, signal, command_id, spared).await?;
        } else if tree || !process.press(signal) {
            self.shared
                .context
                .link
                .send(&Order::Signal { id: process.id, signal, tree }, Vec::new())
                .await?;
        }
        Ok(SignalSent {})
    }

    async fn resize_terminal(&self, request: ResizeRequest) -> Result<Resized, Problem> {
        let wanted = size(request.terminal.unwrap_or_default())?;
        self.running(&request.exec_id).await?.resize(wanted)?;
        Ok(Resized {})
    }

    /// The process with this id, which must be running.
    async fn running(&self, exec_id: &str) -> Result<Arc<Process>, Problem> {
        let process = self.find(exec_id)?;
        process.started().await?;
        if process.is_running() {
            return Ok(process);
        }
        Err(Problem::new(Code::Conflict, format!("exec {exec_id} has ended")))
    }

    async fn end(&self, exec_id: &str) -> Result<ExecResult, Problem> {
        let process = self.find(exec_id)?;
        let replayed = !process.is_running();
        process.stop(Cause::Cancelled);
        let ended = process.ended().await?;
        Ok(answer::result(&process, &ended, replayed))
    }

    /// Ends all commands, so that their ends are on record as cancelled, and then what has left them.
    async fn end_all(&self) -> Result<CancelledAll, Problem> {
        let mut running = self.records().list();
        running.retain(|process| process.is_running());
        running.iter().for_each(|process| process.stop(Cause::Cancelled));
        for process in &running {
            // One that could not be started has ended, too.
            let _ = process.ended().await;
        }
        let left = self.shared.context.link.kill_all().await?;
        Ok(CancelledAll { cancelled: u32::try_from(running.len()).unwrap_or(u32::MAX), left })
    }

    /// Sets the defaults of all commands. They are tried with a command first, so that a wrong user or directory is
    /// refused here and not by every later command. Only the first call has an effect: a sandbox is claimed once in its
    /// life, so a later call is a retry whose answer was lost, and commands may be running already.
    async fn bind(&self, mut request: ConfigureRequest) -> Result<Configured, Problem> {
        let digest = std::mem::take(&mut request.digest);
        let make_cwd = request.make_cwd;
        let defaults = Defaults::new(request)?;
        let _one_at_a_time = self.shared.binding.lock().await;
        if !self.shared.bound.knows(&digest)? {
            // Running a command takes longer than the rest of this call, and one has run before the sandbox could be
            // claimed. So where the defaults cannot fail, it is enough that the spawner still answers.
            if make_cwd && !defaults.cwd.is_empty() {
                self.make_directory(&defaults).await?;
            }
            if defaults.can_fail() {
                self.probe(defaults.clone()).await?;
            } else {
                in_time(self.shared.context.link.ping(), PING_PATIENCE).await?;
            }
            self.renew_ahead(&defaults)?;
            *lock(&self.shared.defaults) = defaults;
            self.shared.bound.set(digest);
        }
        Ok(Configured {})
    }

    /// Makes the directory of the defaults, as their user.
    async fn make_directory(&self, defaults: &Defaults) -> Result<(), Problem> {
        let path = defaults.cwd.clone().into_bytes();
        let request = MakeDirectoryRequest { path, parents: true, ..Default::default() };
        self.files_with(defaults.clone()).make_directory(request).await.map(drop)
    }

    /// The operations on files, with the defaults of this moment.
    fn files(&self) -> Result<Files<'_>, Status> {
        if *self.shared.draining.borrow() {
            return Err(status(&Problem::new(Code::Draining, "the sandbox is shutting down")));
        }
        let defaults = lock(&self.shared.defaults).clone();
        Ok(self.files_with(defaults))
    }

    fn files_with(&self, defaults: Defaults) -> Files<'_> {
        let shared = &self.shared;
        Files { places: &shared.places, context: &shared.context, legs: &shared.legs, defaults }
    }

    async fn measure(&self) -> Result<UsageReport, Problem> {
        let disk = in_time(self.shared.context.link.disk(), MEASURE_PATIENCE).await?;
        Ok(usage::report(disk, self.shared.limits, usage::counter(&self.shared.kernel)))
    }

    /// What files in memory take.
    ///
    /// # Errors
    /// The spawner is gone, or does not answer in time.
    pub async fn memory_file_bytes(&self) -> Result<u64, Problem> {
        Ok(in_time(self.shared.context.link.disk(), MEASURE_PATIENCE).await?.in_memory_bytes)
    }

    /// Whether a command runs, or a call is under way.
    pub fn is_busy(&self) -> bool {
        self.records().running() > 0 || self.shared.uses.quiet() == Duration::ZERO
    }

    async fn report(&self) -> Result<HealthResponse, Problem> {
        in_time(self.shared.context.link.ping(), PING_PATIENCE).await?;
        Ok(HealthResponse {
            sandbox_id: self.shared.sandbox_id.clone(),
            kernel: self.shared.kernel.clone(),
            uptime_ms: u64::try_from(self.shared.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            running_execs: u32::try_from(self.records().running()).unwrap_or(u32::MAX),
            acknowledged: self.shared.acknowledged.load(Ordering::Relaxed),
            quiet_us: Some(u64::try_from(self.shared.uses.quiet().as_micros()).unwrap_or(u64::MAX)),
        })
    }
}

#[tonic::async_trait]
impl Agent for Service {
    type AttachStream = Events;
    type ReadFileStream = Answers<FileChunk>;
    type ListDirectoryStream = Answers<FileInfo>;
    type ReadArchiveStream = Answers<FileChunk>;
    type WatchFilesStream = Answers<WatchEvent>;
    type ConnectStream = ports::Frames;

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResult> {
        answered(self.run(request.into_inner()).await)
    }

    async fn start(&self, request: Request<ExecRequest>) -> Answer<Started> {
        answered(self.begin(request.into_inner()).await)
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<Self::AttachStream> {
        let AttachRequest { exec_id, stdout_offset, stderr_offset } = request.into_inner();
        answered(self.find(&exec_id).map(|process| attach(process, [stdout_offset, stderr_offset])))
    }

    async fn write_stdin(&self, request: Request<StdinChunk>) -> Answer<StdinAccepted> {
        answered(self.feed(request.into_inner()).await)
    }

    async fn signal(&self, request: Request<SignalRequest>) -> Answer<SignalSent> {
        answered(self.signal_process(request.into_inner()).await)
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Answer<ExecResult> {
        answered(self.end(&request.into_inner().exec_id).await)
    }

    async fn cancel_all(&self, _: Request<CancelAllRequest>) -> Answer<CancelledAll> {
        answered(self.end_all().await)
    }

    async fn list(&self, _: Request<ListRequest>) -> Answer<ListResponse> {
        let (processes, oom_kills) = (self.records().list(), self.shared.context.oom.read());
        Ok(Response::new(ListResponse {
            execs: processes.iter().map(|process| answer::summary(process, oom_kills)).collect(),
        }))
    }

    async fn resize(&self, request: Request<ResizeRequest>) -> Answer<Resized> {
        answered(self.resize_terminal(request.into_inner()).await)
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Answer<Self::ReadFileStream> {
        answered(self.files()?.read(request.into_inner()).await)
    }

    async fn write_file(&self, request: Request<Streaming<WriteFileRequest>>) -> Answer<FileInfo> {
        answered(self.files()?.write(request.into_inner()).await)
    }

    async fn stat_file(&self, request: Request<PathRequest>) -> Answer<FileInfo> {
        answered(self.files()?.stat(request.into_inner()).await)
    }

    async fn list_directory(
        &self,
        request: Request<ListDirectoryRequest>,
    ) -> Answer<Self::ListDirectoryStream> {
        answered(self.files()?.list(request.into_inner()).await)
    }

    async fn make_directory(&self, request: Request<MakeDirectoryRequest>) -> Answer<FileInfo> {
        answered(self.files()?.make_directory(request.into_inner()).await)
    }

    async fn move_file(&self, request: Request<MoveFileRequest>) -> Answer<FileInfo> {
        answered(self.files()?.rename(request.into_inner()).await)
    }

    async fn copy_file(&self, request: Request<MoveFileRequest>) -> Answer<FileInfo> {
        answered(self.files()?.copy(request.into_inner()).await)
    }

    async fn remove_file(&self, request: Request<RemoveFileRequest>) -> Answer<Removed> {
        answered(self.files()?.remove(request.into_inner()).await)
    }

    async fn read_archive(&self, request: Request<ReadArchiveRequest>) -> Answer<Self::ReadArchiveStream> {
        answered(self.files()?.read_archive(request.into_inner()).await)
    }

    async fn write_archive(
        &self,
        request: Request<Streaming<WriteArchiveRequest>>,
    ) -> Answer<ArchiveWritten> {
        answered(self.files()?.write_archive(request.into_inner()).await)
    }

    async fn watch_files(&self, request: Request<WatchRequest>) -> Answer<Self::WatchFilesStream> {
        answered(self.files()?.watch(request.into_inner()).await)
    }

    async fn connect(&self, request: Request<Streaming<PortFrame>>) -> Answer<Self::ConnectStream> {
        answered(ports::connect(&self.shared.ports, &self.shared.legs, request).await)
    }

    async fn wait_port(&self, request: Request<WaitPortRequest>) -> Answer<PortState> {
        answered(ports::wait(&self.shared.ports, request).await)
    }

    async fn usage(&self, _: Request<UsageRequest>) -> Answer<UsageReport> {
        answered(self.measure().await)
    }

    async fn configure(&self, request: Request<ConfigureRequest>) -> Answer<Configured> {
        answered(self.bind(request.into_inner()).await)
    }

    async fn open_egress(&self, request: Request<OpenEgressRequest>) -> Answer<EgressOpened> {
        answered(egress::open(self.shared.relay.as_ref(), &self.shared.legs, &request.into_inner().ticket))
    }

    async fn list_refused(&self, _: Request<ListRefusedRequest>) -> Answer<RefusedList> {
        let refused = self.shared.relay.as_ref().map(Relay::refusals).unwrap_or_default();
        Ok(Response::new(RefusedList { refused }))
    }

    async fn health(&self, _: Request<HealthRequest>) -> Answer<HealthResponse> {
        answered(self.report().await)
    }
}

/// Waits for an answer of the spawner, with a timeout.
async fn in_time<T>(
    asked: impl Future<Output = Result<T, Problem>>,
    patience: Duration,
) -> Result<T, Problem> {
    let silent = |_| Problem::new(Code::SandboxUnreachable, "the sandbox's init does not answer");
    tokio::time::timeout(patience, asked).await.map_err(silent)?
}

fn answered<T>(outcome: Result<T, Problem>) -> Answer<T> {
    outcome.map(Response::new).map_err(|problem| status(&problem))
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Ignores poisoning: no code panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
