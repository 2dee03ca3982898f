//! A call on files, as the sidecar sees it: what it asks of a file worker, and the answers.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::sleep;
use wire::{Code, Problem};

use super::frames::{HEADER_BYTES, Job, Kind, MAX_PAYLOAD_BYTES, header};
pub use super::places::Places;
pub use super::running::RunAs;
use super::running::Worker;
use super::starting::{Starting, start};
use super::warm::Warm;
use crate::oom;
use crate::process::supervise::Context;
use crate::spawner::frame::{Ending, Order};
use crate::spawner::link::lost;

/// Chunks of an upload that go to the worker in one write. An upload holds these and the chunk after them in memory.
const MOST_TOGETHER: usize = 2;
/// A request of at most this size is sent in one write, which no pipe's size interrupts, and is kept until the answer.
const SMALL_BYTES: usize = 64 << 10;

/// How long a worker that has waited may take for its first frame before it is continued, as one that was stopped; then
/// twice as long, and so on.
const STOPPED_PATIENCE: Duration = Duration::from_millis(50);

/// A call that a file worker serves. When this is dropped before its end, the worker gets a moment to clean up and is then
/// killed.
#[derive(Debug)]
pub struct Call {
    /// None once the worker waits for the next call.
    worker: Option<Worker>,
    job: Job,
    /// Where the worker goes afterwards; `None`: it ends.
    next: Option<Arc<Warm>>,
    ooms_before: u64,
    context: Arc<Context>,
}

/// What a file worker sends.
#[derive(Debug)]
pub enum WorkerMessage {
    /// Bytes of a file or an archive.
    Data(Bytes),
    /// One message of a stream.
    Item(Bytes),
    /// The answer; nothing follows.
    End(Bytes),
}

impl Call {
    /// Sends `job` to a file worker and waits for what it sends first; waits until there is room for it.
    ///
    /// # Errors
    /// The spawner's refusals (user, directory, processes), too many calls, or the sandbox's end; the worker's problem;
    /// `oom_killed` or `conflict` when it was killed.
    pub async fn ask(
        job: Job,
        run_as: RunAs,
        places: &Places,
        context: &Arc<Context>,
    ) -> Result<(Self, WorkerMessage), Problem> {
        let request = framed(&job)?;
        let (mut call, frame) = Self::small(job, &request, run_as, places, context).await?;
        let message = call.message(frame)?;
        Ok((call, message))
    }

    /// Sends `job` and `chunks` to a file worker and returns its answer, which may come before all chunks are sent.
    ///
    /// # Errors
    /// As for [`Call::ask`]; `stream_interrupted` when one of the chunks is an error.
    pub async fn upload<E>(
        job: Job,
        mut chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
        run_as: RunAs,
        places: &Places,
        context: &Arc<Context>,
    ) -> Result<Bytes, Problem> {
        let request = framed(&job)?;
        let (come, are_all) = come(&mut chunks);
        if are_all && let Some(request) = small_request(&request, &come) {
            let (mut call, frame) = Self::small(job, &request, run_as, places, context).await?;
            return call.answer(frame);
        }
        let mut call = Self::begun(job, run_as, places, context).await?;
        let frame = call.exchange(&request, &mut stream::iter(come).chain(chunks)).await?;
        call.answer(frame)
    }

    /// Waits for what the worker sends next.
    ///
    /// # Errors
    /// The worker's problem; `oom_killed` or `conflict` when it was killed.
    pub async fn next(&mut self) -> Result<WorkerMessage, Problem> {
        let Some(worker) = &mut self.worker else {
            return Err(Problem::new(Code::Internal, "the worker has ended its answer already"));
        };
        match worker.from.next().await {
            Ok(frame) => self.message(frame),
            Err(_) => Err(self.end().await),
        }
    }

    /// Sends a request in one write, and waits for the worker's first frame. A worker that waited for it may have ended
    /// meanwhile: when it has read nothing of the request, it has done nothing, and another one is started.
    async fn small(
        mut job: Job,
        request: &[u8],
        run_as: RunAs,
        places: &Places,
        context: &Arc<Context>,
    ) -> Result<(Self, (Kind, Bytes)), Problem> {
        let mut permits = places.take(&job).await?;
        if run_as.may_share()
            && let Some(worker) = places.warm.take(&run_as.user)
        {
            worker.hold(permits);
            let mut call = Self::new(worker, job, Some(&places.warm), context);
            match call.continued(request).await {
                Some(frame) => return Ok((call, frame)),
                None => (job, permits) = call.not_begun(request.len()).await?,
            }
        }
        let (mut call, started) = Self::fresh(job, run_as, permits, places, context).await?;
        let started = async { started.await.map_err(|_| lost())? };
        // The worker finds its request when it starts.
        let (first, ()) = tokio::try_join!(call.first(request).map(Ok), started)?;
        match first {
            Some(frame) => Ok((call, frame)),
            None => Err(call.end().await),
        }
    }

    /// A call with a worker that runs for certain. Data of a large upload cannot be sent a second time, to another worker;
    /// so a worker that has waited is asked first whether it still answers.
    async fn begun(
        mut job: Job,
        run_as: RunAs,
        places: &Places,
        context: &Arc<Context>,
    ) -> Result<Self, Problem> {
        let mut permits = places.take(&job).await?;
        if run_as.may_share()
            && let Some(worker) = places.warm.take(&run_as.user)
        {
            worker.hold(permits);
            let mut call = Self::new(worker, job, Some(&places.warm), context);
            match call.continued(&header(Kind::Item, 0)).await {
                Some((Kind::Item, _)) => return Ok(call),
                _ => {
                    (job, permits) =
                        (call.job, call.worker.map(|worker| worker.release()).unwrap_or_default())
                }
            }
        }
        let (call, started) = Self::fresh(job, run_as, permits, places, context).await?;
        started.await.map_err(|_| lost())??;
        Ok(call)
    }

    /// A call with a worker of its own, which stays for the next call where that may share it.
    async fn fresh(
        job: Job,
        run_as: RunAs,
        permits: Vec<OwnedSemaphorePermit>,
        places: &Places,
        context: &Arc<Context>,
    ) -> Result<(Self, oneshot::Receiver<Result<(), Problem>>), Problem> {
        let next = run_as.may_share().then_some(&places.warm);
        let Starting { worker, started } = start(run_as, permits, &places.warm, context).await?;
        Ok((Self::new(worker, job, next, context), started))
    }

    fn new(worker: Worker, job: Job, next: Option<&Arc<Warm>>, context: &Arc<Context>) -> Self {
        let ooms_before = context.oom.read();
        Self { worker: Some(worker), job, next: next.cloned(), ooms_before, context: Arc::clone(context) }
    }

    /// Sends a request, and waits for the worker's first frame; `None`: it has ended.
    async fn first(&mut self, request: &[u8]) -> Option<(Kind, Bytes)> {
        let worker = self.worker.as_mut()?;
        // A worker that is gone already has sent its problem, or its ending gives the reason.
        let _ = worker.to.write_all(request).await;
        worker.from.next().await.ok()
    }

    /// [`Call::first`] of a worker that has waited, and that a process of the sandbox may have stopped meanwhile.
    async fn continued(&mut self, request: &[u8]) -> Option<(Kind, Bytes)> {
        let (link, id) = (self.context.link.clone(), self.worker.as_ref()?.id);
        let continuing = async {
            for patience in 0u32.. {
                sleep(STOPPED_PATIENCE * 2u32.saturating_pow(patience)).await;
                let order = Order::Signal { id, signal: libc::SIGCONT.cast_unsigned(), tree: false };
                if link.send(&order, Vec::new()).await.is_err() {
                    break;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            frame = self.first(request) => frame,
            never = continuing => never,
        }
    }

    /// What another worker needs for a call whose worker has ended before it began.
    async fn not_begun(mut self, request_bytes: usize) -> Result<(Job, Vec<OwnedSemaphorePermit>), Problem> {
        match self.worker.as_ref().filter(|worker| worker.has_not_read(request_bytes)) {
            Some(worker) => Ok((self.job, worker.release())),
            None => Err(self.end().await),
        }
    }

    fn message(&mut self, (kind, payload): (Kind, Bytes)) -> Result<WorkerMessage, Problem> {
        if self.job.leaves_empty(kind) {
            self.hand_over();
        }
        match kind {
            Kind::Data => Ok(WorkerMessage::Data(payload)),
            Kind::Item => Ok(WorkerMessage::Item(payload)),
            Kind::End => Ok(WorkerMessage::End(payload)),
            Kind::Problem => Err(Problem::decode(&payload)
                .unwrap_or_else(|| Problem::new(Code::Internal, "the worker's problem cannot be read"))),
            Kind::Job => Err(Problem::new(Code::Internal, "the worker has sent a job")),
        }
    }

    fn answer(&mut self, frame: (Kind, Bytes)) -> Result<Bytes, Problem> {
        match self.message(frame)? {
            WorkerMessage::End(payload) => Ok(payload),
            other => Err(Problem::new(Code::Internal, format!("the worker answered with {other:?}"))),
        }
    }

    /// Keeps the worker for the next call, unless it has sent more than its answer.
    fn hand_over(&mut self) {
        let worker = self.worker.take_if(|worker| worker.from.is_empty());
        if let (Some(warm), Some(worker)) = (&self.next, worker) {
            warm.keep(worker);
        }
    }

    /// Sends everything, and waits for the answer.
    async fn exchange<E>(
        &mut self,
        request: &[u8],
        chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<(Kind, Bytes), Problem> {
        let Some(worker) = &mut self.worker else { return Err(lost()) };
        // A worker that is gone already has sent its problem, or its ending gives the reason.
        let _ = worker.to.write_all(request).await;
        match both_ways(worker, chunks).await? {
            Ok(frame) => Ok(frame),
            Err(_) => Err(self.end().await),
        }
    }

    /// Why the worker ended without an answer.
    async fn end(&mut self) -> Problem {
        let Some(worker) = &mut self.worker else { return lost() };
        let ending = match (&mut worker.ended).await {
            Ok(Ok(ending)) => ending,
            Ok(Err(problem)) => return problem,
            Err(_) => return lost(),
        };
        if oom::looks_killed(ending) && self.context.oom.read() > self.ooms_before {
            return Problem::new(Code::OomKilled, "the kernel killed the call's worker for memory");
        }
        match ending {
            Ending::Signalled(signal) if signal == libc::SIGKILL.cast_unsigned() => {
                let detail = "a process of the sandbox killed the call's worker";
                Problem::new(Code::Conflict, detail).with("reason", "worker_killed")
            }
            other => {
                Problem::new(Code::Internal, format!("the call's worker ended without an answer: {other:?}"))
            }
        }
    }
}

/// The frame of a job.
fn framed(job: &Job) -> Result<Vec<u8>, Problem> {
    let payload = job.encode();
    if payload.len() > MAX_PAYLOAD_BYTES {
        let detail = format!("the request has {} bytes; the limit is {MAX_PAYLOAD_BYTES}", payload.len());
        return Err(Problem::new(Code::PayloadTooLarge, detail).with("limit_bytes", MAX_PAYLOAD_BYTES));
    }
    Ok([&header(Kind::Job, payload.len())[..], &payload].concat())
}

/// The first chunks, as far as they have come, and whether these are all.
fn come<E>(chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin)) -> (Vec<Result<Bytes, E>>, bool) {
    let mut come = Vec::new();
    while come.len() < MOST_TOGETHER {
        match chunks.next().now_or_never() {
            Some(Some(chunk)) => come.push(chunk),
            Some(None) => return (come, true),
            None => break,
        }
    }
    (come, false)
}

/// A job's frame, its data and their end; `None` where these are too large for one write, or broke off.
fn small_request<E>(job: &[u8], data: &[Result<Bytes, E>]) -> Option<Vec<u8>> {
    let chunks: Vec<&Bytes> = data.iter().map(|chunk| chunk.as_ref().ok()).collect::<Option<_>>()?;
    let size =
        job.len() + chunks.iter().map(|chunk| HEADER_BYTES + chunk.len()).sum::<usize>() + HEADER_BYTES;
    if size > SMALL_BYTES {
        return None;
    }
    let mut request = job.to_vec();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        request.extend_from_slice(&header(Kind::Data, chunk.len()));
        request.extend_from_slice(chunk);
    }
    request.extend_from_slice(&header(Kind::End, 0));
    Some(request)
}

/// Sends and receives at the same time: a worker may answer (its disk is full) before it has read everything.
async fn both_ways<E>(
    Worker { to, from, .. }: &mut Worker,
    chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
) -> Result<io::Result<(Kind, Bytes)>, Problem> {
    let mut answer = std::pin::pin!(from.next());
    let whole = tokio::select! {
        biased;
        answer = &mut answer => return Ok(answer),
        whole = send(to, chunks) => whole,
    };
    if whole {
        return Ok(answer.await);
    }
    Err(Problem::new(Code::StreamInterrupted, "the upload broke off before its end"))
}

/// Sends the data and their end. False: the caller's data broke off. A worker that stops reading has sent its reason.
async fn send<E>(to: &mut Sender, chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin)) -> bool {
    let mut next = chunks.next().await;
    while let Some(first) = next {
        let Ok(first) = first else { return false };
        let mut batch = vec![first];
        let came = loop {
            match chunks.next().now_or_never() {
                Some(Some(Ok(chunk))) if batch.len() < MOST_TOGETHER => batch.push(chunk),
                other => break other,
            }
        };
        if data(to, &batch).await.is_err() {
            return true;
        }
        next = match came {
            Some(came) => came,
            None => chunks.next().await,
        };
    }
    let _ = to.write_all(&header(Kind::End, 0)).await;
    true
}

/// Sends the chunks that arrived together in one write: nearly all of its cost is waking the worker.
async fn data(to: &mut Sender, chunks: &[Bytes]) -> io::Result<()> {
    let payloads: Vec<_> = chunks.iter().flat_map(|chunk| chunk.chunks(MAX_PAYLOAD_BYTES)).collect();
    let heads: Vec<_> = payloads.iter().map(|payload| header(Kind::Data, payload.len())).collect();
    let frames = heads.iter().zip(payloads);
    let mut slices: Vec<_> =
        frames.flat_map(|(head, payload)| [IoSlice::new(head), IoSlice::new(payload)]).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match to.write_vectored(rest).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut rest, count),
        }
    }
    Ok(())
}
