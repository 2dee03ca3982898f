//! Started commands of the fake sidecar: `echo TEXT`, `cat`, `deaf` (never reads its input), `flood N` (N chunks of 64
//! KiB), `drip N` (N chunks of a byte), `stay` (until a signal). A signal ends any of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use tonic::Status;
use wire::agent::attach_event::Event;
use wire::agent::{self, AttachEvent, Chunk, End, ExecResult, Output};

use super::sidecar::{Events, status};

pub const CHUNK: usize = 64 << 10;

/// The process id of every command.
const PID: u32 = 7;

/// Everything that was started.
#[derive(Debug, Default)]
pub struct Processes {
    by_id: Mutex<HashMap<String, Arc<Process>>>,
    /// Streams whose reader left before the result.
    dropped: Arc<watch::Sender<usize>>,
    /// Chunks that were sent.
    chunks: Arc<watch::Sender<usize>>,
}

#[derive(Debug)]
struct Process {
    exec_id: String,
    verb: String,
    rest: String,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    stdin: Vec<u8>,
    eof: bool,
    signal: u32,
    sizes: Vec<(u32, u32)>,
}

/// The position of a reader, and whether it has received its result.
struct Reader {
    process: Arc<Process>,
    position: u64,
    over: bool,
    dropped: Arc<watch::Sender<usize>>,
    chunks: Arc<watch::Sender<usize>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.over {
            self.dropped.send_modify(|dropped| *dropped += 1);
        }
    }
}

impl Processes {
    pub async fn dropped(&self, count: usize) {
        self.dropped.subscribe().wait_for(|dropped| *dropped >= count).await.unwrap();
    }

    pub fn chunks(&self) -> usize {
        *self.chunks.borrow()
    }

    /// Completes when the process has received this much input.
    pub async fn fed(&self, exec_id: &str, bytes: usize) -> Vec<u8> {
        let process = self.find(exec_id).unwrap();
        let mut state = process.state.subscribe();
        state.wait_for(|state| state.stdin.len() >= bytes).await.unwrap().stdin.clone()
    }

    pub async fn resized(&self, exec_id: &str, count: usize) -> Vec<(u32, u32)> {
        let process = self.find(exec_id).unwrap();
        let mut state = process.state.subscribe();
        state.wait_for(|state| state.sizes.len() >= count).await.unwrap().sizes.clone()
    }

    pub fn sizes(&self, exec_id: &str) -> Vec<(u32, u32)> {
        self.find(exec_id).unwrap().state.borrow().sizes.clone()
    }

    fn find(&self, exec_id: &str) -> Result<Arc<Process>, Status> {
        self.by_id.lock().unwrap().get(exec_id).cloned().ok_or_else(|| status("exec_not_found"))
    }

    pub fn start(&self, request: &agent::ExecRequest) -> Result<agent::Started, Status> {
        let (verb, rest) = request.command.split_once(' ').unwrap_or((&request.command, ""));
        if verb == "problem" {
            return Err(status(rest));
        }
        let (exec_id, state) = (request.exec_id.clone(), watch::Sender::new(State::default()));
        let process = Process { exec_id: exec_id.clone(), verb: verb.into(), rest: rest.into(), state };
        let replayed = self.by_id.lock().unwrap().insert(exec_id.clone(), Arc::new(process)).is_some();
        Ok(agent::Started { exec_id, pid: PID, spawn_us: 900, replayed })
    }

    /// Everything that was started.
    pub fn list(&self) -> Vec<agent::ExecSummary> {
        let summary = |process: &Arc<Process>| {
            let state = process.state.borrow();
            let running = state.signal == 0 && !process.output(&state).1;
            agent::ExecSummary { exec_id: process.exec_id.clone(), pid: PID, running, ..Default::default() }
        };
        self.by_id.lock().unwrap().values().map(summary).collect()
    }

    /// Kills a command that was started.
    pub fn cancel(&self, exec_id: &str) {
        if let Ok(process) = self.find(exec_id) {
            process.state.send_modify(|state| state.signal = 9);
        }
    }

    pub fn attach(&self, request: &agent::AttachRequest) -> Result<Events<AttachEvent>, Status> {
        let (dropped, chunks) = (Arc::clone(&self.dropped), Arc::clone(&self.chunks));
        let process = self.find(&request.exec_id)?;
        let reader = Reader { process, position: request.stdout_offset, over: false, dropped, chunks };
        let events = stream::unfold(reader, |mut reader| async {
            if reader.over {
                return None;
            }
            let event = reader.next().await;
            Some((Ok(AttachEvent { event: Some(event) }), reader))
        });
        Ok(Box::pin(events))
    }

    pub async fn write(&self, chunk: agent::StdinChunk) -> Result<agent::StdinAccepted, Status> {
        let process = self.find(&chunk.exec_id)?;
        match process.verb.as_str() {
            "deaf" => std::future::pending().await,
            "cat" => {}
            _ => return Err(status("conflict")),
        }
        let mut offset = 0;
        process.state.send_modify(|state| {
            let known = state.stdin.len().saturating_sub(usize::try_from(chunk.offset).unwrap());
            state.stdin.extend_from_slice(chunk.data.get(known..).unwrap_or_default());
            state.eof |= chunk.eof;
            offset = state.stdin.len() as u64;
        });
        Ok(agent::StdinAccepted { offset })
    }

    pub fn signal(&self, request: &agent::SignalRequest) -> Result<agent::SignalSent, Status> {
        let process = self.find(&request.exec_id)?;
        process.state.send_modify(|state| state.signal = request.signal);
        Ok(agent::SignalSent {})
    }

    /// A size of 7 columns takes 50 ms.
    pub async fn resize(&self, request: &agent::ResizeRequest) -> Result<agent::Resized, Status> {
        let process = self.find(&request.exec_id)?;
        if process.verb == "echo" {
            return Err(status("invalid_argument"));
        }
        let size = request.terminal.unwrap();
        if size.columns == 7 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        process.state.send_modify(|state| state.sizes.push((size.columns, size.rows)));
        Ok(agent::Resized {})
    }
}

impl Reader {
    async fn next(&mut self) -> Event {
        let process = Arc::clone(&self.process);
        let mut state = process.state.subscribe();
        loop {
            let (written, ended) = {
                let now = state.borrow_and_update();
                let (written, ended) = process.output(&now);
                (written, ended || now.signal > 0)
            };
            let total = written.len() as u64;
            let length = process.chunk_length();
            if length > 0 && self.position < process.rest.parse::<u64>().unwrap() * length as u64 {
                return self.chunk(Bytes::from(vec![b'x'; length]));
            }
            if self.position < total {
                let from = usize::try_from(self.position).unwrap();
                return self.chunk(Bytes::copy_from_slice(&written[from..]));
            }
            if ended {
                self.over = true;
                return Event::Result(self.result());
            }
            state.changed().await.unwrap();
        }
    }

    fn chunk(&mut self, data: Bytes) -> Event {
        let offset = self.position;
        self.position += data.len() as u64;
        self.chunks.send_modify(|chunks| *chunks += 1);
        Event::Stdout(Chunk { offset, data })
    }

    fn result(&self) -> ExecResult {
        let signal = self.process.state.borrow().signal;
        let stdout = Some(Output { total_bytes: self.position, ..Output::default() });
        let exec_id = self.process.exec_id.clone();
        let mut result =
            ExecResult { exec_id, stdout, signal, spawn_us: 900, run_us: 1500, ..Default::default() };
        result.set_end(if signal > 0 { End::Signalled } else { End::Exited });
        result
    }
}

impl Process {
    /// The bytes of each of its chunks; 0 of a process that does not write by itself.
    fn chunk_length(&self) -> usize {
        match self.verb.as_str() {
            "flood" => CHUNK,
            "drip" => 1,
            _ => 0,
        }
    }

    /// What the process has written so far, and whether it has ended.
    fn output(&self, state: &State) -> (Vec<u8>, bool) {
        match self.verb.as_str() {
            "echo" => (self.rest.clone().into_bytes(), true),
            "cat" => (state.stdin.clone(), state.eof),
            "flood" | "drip" => (Vec::new(), true),
            _ => (Vec::new(), false),
        }
    }
}
