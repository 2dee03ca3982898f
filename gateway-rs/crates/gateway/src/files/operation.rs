use std::sync::Arc;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use http::{HeaderMap, HeaderValue};
use resolve::Route;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::agent::agent_client::AgentClient;
use wire::{Fault, Problem};

use crate::admission::{Admission, Permit};
use crate::auth::{self, Bearer};
use crate::call::{self, Calls};
use crate::drain::Call;
use crate::http::request_id;
use crate::leg::{Leg, Way};
use crate::telemetry::{FileOperation, FileOutcome, Metrics};
use crate::upstream::Channel;

/// What file calls share.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    calls: Arc<Calls>,
    /// Admission gate of transfers.
    transfers: Arc<Admission>,
    /// Admission gate of watches.
    streams: Arc<Admission>,
    /// Tasks that read on what refused clients still send.
    discards: TaskTracker,
}

impl Files {
    /// File calls that take their permits from these gates, watches from `streams`. Their tasks run in `discards`.
    pub(crate) fn new(
        calls: Arc<Calls>,
        transfers: Arc<Admission>,
        streams: Arc<Admission>,
        discards: TaskTracker,
    ) -> Self {
        Self { calls, transfers, streams, discards }
    }

    /// Runs a task beside the call.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.discards.spawn(task);
    }
}

/// One file call. Its outcome is counted when it is dropped; a caller that leaves early drops it before it has one.
pub(super) struct Operation {
    pub(super) calls: Arc<Calls>,
    pub(super) bearer: Bearer,
    pub(super) route: Arc<Route>,
    pub(super) agent: AgentClient<Channel>,
    request_id: HeaderValue,
    counted: Counted,
    _place: Arc<Permit>,
    _call: Call,
}

/// Counts the outcome of an operation when dropped.
struct Counted {
    metrics: Arc<Metrics>,
    operation: FileOperation,
    outcome: FileOutcome,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.file(self.operation, self.outcome);
    }
}

impl Operation {
    /// Admits a call: checks token and query (`check`), gets route and permit.
    ///
    /// # Errors
    /// The problem of the first step that fails.
    pub(super) async fn enter<T>(
        files: Files,
        id: Result<Path<String>, PathRejection>,
        headers: &HeaderMap,
        operation: FileOperation,
        check: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<(Self, T), Problem> {
        let Files { calls, transfers, streams, .. } = files;
        let mut counted =
            Counted { metrics: Arc::clone(calls.metrics()), operation, outcome: FileOutcome::Gone };
        let entered = async {
            let call = calls.enter()?;
            let bearer = auth::check_path(calls.verifier(), headers, id)?;
            let checked = check()?;
            // A watch lives as long as its caller, so it counts as a stream.
            let gate = if operation == FileOperation::Watch { &streams } else { &transfers };
            let (route, place) = calls.admit(gate, &bearer).await?;
            Ok((call, bearer, checked, route, place))
        };
        let (call, bearer, checked, route, place) =
            entered.await.inspect_err(|problem| counted.outcome = outcome(problem))?;
        let agent = calls.agent(&route);
        let request_id = headers.get(request_id::HEADER).cloned().unwrap_or(HeaderValue::from_static(""));
        let place = Arc::new(place);
        let operation = Self { calls, bearer, route, agent, request_id, counted, _place: place, _call: call };
        Ok((operation, checked))
    }

    /// The operation's permit, for what may outlive the call.
    pub(super) fn place(&self) -> Arc<Permit> {
        Arc::clone(&self._place)
    }

    pub(super) fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    pub(super) fn authorized<T>(&self, message: T) -> Request<T> {
        call::authorized(message, &self.bearer.header)
    }

    /// Makes a leg for a call that is about to be sent.
    pub(super) fn leg(&self, way: Way) -> Leg {
        self.calls.leg(way, &self.route)
    }

    /// Returns the answer to a call that takes the sidecar a moment.
    pub(super) async fn ask<T>(
        &mut self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Problem> {
        let answered = self.calls.ask(&self.route, call).await;
        answered.inspect_err(|problem| self.failed(problem))
    }

    /// Returns the answer to a call without a timeout.
    pub(super) async fn ask_without_timeout<T>(
        &mut self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Problem> {
        let answered = self.calls.ask_without_timeout(&self.route, call).await;
        answered.inspect_err(|problem| self.failed(problem))
    }

    /// Records that the operation succeeded.
    pub(super) fn done(&mut self) {
        self.counted.outcome = FileOutcome::Ok;
    }

    /// Records that the operation failed.
    pub(super) fn failed(&mut self, problem: &Problem) {
        self.counted.outcome = outcome(problem);
    }

    /// The same for a response that has begun: its problem is counted nowhere else.
    pub(super) fn failed_midway(&mut self, problem: &Problem) {
        self.failed(problem);
        self.calls.metrics().problem(problem.code);
        let (request_id, code) = (self.request_id(), problem.code.name());
        tracing::info!(request_id, code, detail = problem.detail, "response aborted after it had begun");
    }
}

fn outcome(problem: &Problem) -> FileOutcome {
    match problem.code.fault() {
        Fault::Caller | Fault::Workload => FileOutcome::Refused,
        Fault::Capacity | Fault::Platform => FileOutcome::Failed,
    }
}
