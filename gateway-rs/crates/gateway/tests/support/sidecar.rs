//! A fake sidecar with commands of its own: `echo TEXT`, `exit N`, `bytes`, `hang`, `hold`, `problem CODE`, `killed
//! END`, `cat` (stdin); any other command fails with a bare gRPC status. Commands for attached clients are in
//! `running`, files in `files`. In all else it does what `tests/contract/agent_suite.py` asks of a sidecar.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::Stream;
use tokio::sync::{Semaphore, mpsc, watch};
use tonic::{Code as GrpcCode, Request, Response, Status};
use wire::agent::agent_server::{Agent, AgentServer};
use wire::agent::usage_report::Counter;
use wire::agent::{self, End, ExecRequest, ExecResult, Output};
use wire::{Code, Problem};

use super::files::Files;
use super::running::Processes;
use super::serve::Served;

/// The handle of a fake sidecar.
#[derive(Debug)]
pub struct Sidecar {
    pub served: Served,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    seen: watch::Sender<Vec<ExecRequest>>,
    tokens: Mutex<Vec<String>>,
    /// Settings that were to be bound, each with its token.
    bound: Mutex<Vec<(agent::ConfigureRequest, String)>>,
    /// Execs whose caller left before the end.
    dropped: watch::Sender<usize>,
    hold: Semaphore,
    processes: Processes,
    files: Files,
    counter: Counter,
}

/// By the name of the sandbox: one in gVisor, or one of a version that does not say it.
fn counter(name: &str) -> Counter {
    let is = |word| name.contains(word);
    if is("gvisor") {
        Counter::Sandbox
    } else if is("before") {
        Counter::Unspecified
    } else {
        Counter::Node
    }
}

impl Sidecar {
    pub fn listen(path: &Path) -> Self {
        let (legs, brought) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            seen: watch::Sender::default(),
            tokens: Mutex::default(),
            bound: Mutex::default(),
            dropped: watch::Sender::default(),
            hold: Semaphore::new(0),
            processes: Processes::default(),
            files: Files::new(brought),
            counter: counter(&path.to_string_lossy()),
        });
        let service = AgentServer::new(Fake(Arc::clone(&state)))
            .max_decoding_message_size(64 << 20)
            .max_encoding_message_size(64 << 20);
        Self { served: Served::grpc_and_legs(path, service, legs), state }
    }

    /// Completes when this many execs have arrived; returns all of them.
    pub async fn seen(&self, count: usize) -> Vec<ExecRequest> {
        self.state.seen.subscribe().wait_for(|seen| seen.len() >= count).await.unwrap().clone()
    }

    pub fn seen_now(&self) -> usize {
        self.state.seen.borrow().len()
    }

    /// Completes when this many execs have lost their caller.
    pub async fn dropped(&self, count: usize) {
        self.state.dropped.subscribe().wait_for(|dropped| *dropped >= count).await.unwrap();
    }

    /// Lets this many `hold` commands end.
    pub fn release(&self, count: usize) {
        self.state.hold.add_permits(count);
    }

    pub fn processes(&self) -> &Processes {
        &self.state.processes
    }

    pub fn files(&self) -> &Files {
        &self.state.files
    }

    /// The settings that were to be bound, each with its token. With the variable FAKE they hang (`hang`) or are refused
    /// (`problem CODE`).
    pub fn bound(&self) -> Vec<(agent::ConfigureRequest, String)> {
        self.state.bound.lock().unwrap().clone()
    }

    pub fn last_token(&self) -> String {
        self.state.tokens.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Fake(Arc<State>);

/// Counts an exec as dropped unless it ended.
struct Watched<'a>(&'a State, bool);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.dropped.send_modify(|dropped| *dropped += 1);
        }
    }
}

fn output(data: &[u8]) -> Option<Output> {
    Some(Output { data: data.to_vec(), total_bytes: data.len() as u64, truncated: false })
}

fn exited(request: &ExecRequest, exit_code: i32, stdout: &[u8]) -> ExecResult {
    let mut result = ExecResult {
        exec_id: request.exec_id.clone(),
        exit_code,
        stdout: output(stdout),
        stderr: output(b""),
        spawn_us: 900,
        run_us: 1500,
        ..ExecResult::default()
    };
    result.set_end(End::Exited);
    result
}

fn killed(request: &ExecRequest, end: &str) -> ExecResult {
    let mut result = exited(request, 0, b"partial");
    result.signal = 9;
    result.set_end(End::from_str_name(end).unwrap());
    result
}

pub fn status(code: &str) -> Status {
    let problem = Problem::new(Code::from_name(code).unwrap(), format!("fake {code}")).with("reason", "fake");
    Status::with_details(GrpcCode::Unknown, "", problem.encode().into())
}

impl State {
    fn keep_token<T>(&self, request: &Request<T>) {
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        self.tokens.lock().unwrap().push(token);
    }

    async fn run(&self, request: ExecRequest) -> Result<ExecResult, Status> {
        let (verb, rest) = request.command.split_once(' ').unwrap_or((&request.command, ""));
        match verb {
            "echo" => Ok(exited(&request, 0, rest.as_bytes())),
            "exit" => Ok(exited(&request, rest.parse().unwrap(), b"")),
            "bytes" => Ok(exited(&request, 0, b"\xff\xfe")),
            "cat" => Ok(exited(&request, 0, &request.stdin)),
            "hang" => std::future::pending().await,
            "hold" => {
                self.hold.acquire().await.unwrap().forget();
                Ok(exited(&request, 0, b"released"))
            }
            "killed" => Ok(killed(&request, rest)),
            "problem" => Err(status(rest)),
            _ => Err(Status::internal("no such fake command")),
        }
    }
}

fn not_called<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not called by the gateway"))
}

pub type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Agent for Fake {
    type AttachStream = Events<agent::AttachEvent>;
    type ReadFileStream = Events<agent::FileChunk>;
    type ListDirectoryStream = Events<agent::FileInfo>;
    type ReadArchiveStream = Events<agent::FileChunk>;
    type WatchFilesStream = Events<agent::WatchEvent>;
    type ConnectStream = Events<agent::PortFrame>;

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResult>, Status> {
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        self.0.tokens.lock().unwrap().push(token);
        let request = request.into_inner();
        let mut watched = Watched(&self.0, false);
        self.0.seen.send_modify(|seen| seen.push(request.clone()));
        let result = self.0.run(request).await;
        watched.1 = true;
        result.map(Response::new)
    }

    async fn list(&self, _: Request<agent::ListRequest>) -> Result<Response<agent::ListResponse>, Status> {
        Ok(Response::new(agent::ListResponse { execs: self.0.processes.list() }))
    }

    async fn cancel(&self, request: Request<agent::CancelRequest>) -> Result<Response<ExecResult>, Status> {
        let exec_id = request.into_inner().exec_id;
        let runs = self.0.seen.borrow().iter().any(|seen| seen.exec_id == exec_id);
        if !runs {
            return Err(status("exec_not_found"));
        }
        self.0.processes.cancel(&exec_id);
        let request = ExecRequest { exec_id, ..Default::default() };
        Ok(Response::new(killed(&request, "CANCELLED")))
    }

    async fn cancel_all(
        &self,
        _: Request<agent::CancelAllRequest>,
    ) -> Result<Response<agent::CancelledAll>, Status> {
        let running: Vec<_> = self.0.processes.list().into_iter().filter(|exec| exec.running).collect();
        running.iter().for_each(|exec| self.0.processes.cancel(&exec.exec_id));
        let cancelled = u32::try_from(running.len()).unwrap_or(u32::MAX);
        Ok(Response::new(agent::CancelledAll { cancelled, left: 0 }))
    }

    async fn start(&self, request: Request<ExecRequest>) -> Result<Response<agent::Started>, Status> {
        let request = request.into_inner();
        self.0.seen.send_modify(|seen| seen.push(request.clone()));
        self.0.processes.start(&request).map(Response::new)
    }

    async fn attach(
        &self,
        request: Request<agent::AttachRequest>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        self.0.processes.attach(&request.into_inner()).map(Response::new)
    }

    async fn read_file(
        &self,
        request: Request<agent::ReadFileRequest>,
    ) -> Result<Response<Self::ReadFileStream>, Status> {
        self.0.files.read(&request.into_inner()).map(Response::new)
    }

    async fn list_directory(
        &self,
        request: Request<agent::ListDirectoryRequest>,
    ) -> Result<Response<Self::ListDirectoryStream>, Status> {
        self.0.files.list(&request.into_inner()).map(Response::new)
    }

    async fn write_file(
        &self,
        request: Request<tonic::Streaming<agent::WriteFileRequest>>,
    ) -> Result<Response<agent::FileInfo>, Status> {
        self.0.files.write(request.into_inner()).await.map(Response::new)
    }

    async fn write_stdin(
        &self,
        request: Request<agent::StdinChunk>,
    ) -> Result<Response<agent::StdinAccepted>, Status> {
        self.0.processes.write(request.into_inner()).await.map(Response::new)
    }

    async fn signal(
        &self,
        request: Request<agent::SignalRequest>,
    ) -> Result<Response<agent::SignalSent>, Status> {
        self.0.processes.signal(&request.into_inner()).map(Response::new)
    }

    async fn stat_file(
        &self,
        request: Request<agent::PathRequest>,
    ) -> Result<Response<agent::FileInfo>, Status> {
        self.0.files.stat(&request.into_inner().path).map(Response::new)
    }

    async fn make_directory(
        &self,
        request: Request<agent::MakeDirectoryRequest>,
    ) -> Result<Response<agent::FileInfo>, Status> {
        self.0.files.make(&request.into_inner()).map(Response::new)
    }

    async fn move_file(
        &self,
        request: Request<agent::MoveFileRequest>,
    ) -> Result<Response<agent::FileInfo>, Status> {
        self.0.files.copy(&request.into_inner(), true).map(Response::new)
    }

    async fn remove_file(
        &self,
        request: Request<agent::RemoveFileRequest>,
    ) -> Result<Response<agent::Removed>, Status> {
        self.0.files.remove(&request.into_inner()).map(Response::new)
    }

    async fn resize(
        &self,
        request: Request<agent::ResizeRequest>,
    ) -> Result<Response<agent::Resized>, Status> {
        self.0.processes.resize(&request.into_inner()).await.map(Response::new)
    }

    async fn copy_file(
        &self,
        request: Request<agent::MoveFileRequest>,
    ) -> Result<Response<agent::FileInfo>, Status> {
        self.0.files.copy(&request.into_inner(), false).map(Response::new)
    }

    async fn read_archive(
        &self,
        request: Request<agent::ReadArchiveRequest>,
    ) -> Result<Response<Self::ReadArchiveStream>, Status> {
        let agent::ReadArchiveRequest { path, user, ticket } = request.into_inner();
        let request = agent::ReadFileRequest { path, user, ticket, ..Default::default() };
        self.0.files.read(&request).map(Response::new)
    }

    async fn watch_files(
        &self,
        request: Request<agent::WatchRequest>,
    ) -> Result<Response<Self::WatchFilesStream>, Status> {
        self.0.files.watch(&request.into_inner().path).map(Response::new)
    }

    async fn wait_port(
        &self,
        request: Request<agent::WaitPortRequest>,
    ) -> Result<Response<agent::PortState>, Status> {
        self.0.keep_token(&request);
        let listening = super::ports::listens(request.into_inner()).await;
        Ok(Response::new(agent::PortState { listening }))
    }

    async fn usage(&self, _: Request<agent::UsageRequest>) -> Result<Response<agent::UsageReport>, Status> {
        let (cpu_us, memory_bytes, memory_limit_bytes) = (1500, 1 << 20, 2 << 20);
        let report = agent::UsageReport {
            cpu_us,
            memory_bytes,
            memory_limit_bytes,
            memory_files_bytes: 4096,
            processes: 3,
            counter: self.0.counter.into(),
            ..Default::default()
        };
        Ok(Response::new(report))
    }

    async fn write_archive(
        &self,
        request: Request<tonic::Streaming<agent::WriteArchiveRequest>>,
    ) -> Result<Response<agent::ArchiveWritten>, Status> {
        self.0.files.unpack(request.into_inner()).await.map(Response::new)
    }

    async fn connect(
        &self,
        request: Request<tonic::Streaming<agent::PortFrame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        self.0.keep_token(&request);
        super::ports::connect(request.into_inner()).await.map(Response::new)
    }

    async fn configure(
        &self,
        request: Request<agent::ConfigureRequest>,
    ) -> Result<Response<agent::Configured>, Status> {
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        let request = request.into_inner();
        let fake = request.env.get("FAKE").cloned().unwrap_or_default();
        self.0.bound.lock().unwrap().push((request, token));
        match fake.split_once(' ') {
            Some(("problem", code)) => Err(status(code)),
            None if fake == "hang" => std::future::pending().await,
            _ => Ok(Response::new(agent::Configured {})),
        }
    }

    async fn open_egress(
        &self,
        _: Request<agent::OpenEgressRequest>,
    ) -> Result<Response<agent::EgressOpened>, Status> {
        not_called()
    }

    async fn list_refused(
        &self,
        _: Request<agent::ListRefusedRequest>,
    ) -> Result<Response<agent::RefusedList>, Status> {
        not_called()
    }

    async fn health(
        &self,
        _: Request<agent::HealthRequest>,
    ) -> Result<Response<agent::HealthResponse>, Status> {
        not_called()
    }
}
