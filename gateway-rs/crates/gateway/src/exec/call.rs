use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::agent::{
    CancelAllRequest, CancelRequest, CancelledAll, End, ExecRequest, ExecResult, ListRequest, ListResponse,
    Output, SignalRequest, Started,
};
use wire::{Code, Problem};

use crate::admission::Admission;
use crate::auth::Bearer;
use crate::call::{self, Calls, Interrupted, authorized};
use crate::http::body::{Budget, Reader};
use crate::upstream::{self, Loss};

const SIGKILL: u32 = 9;

/// Grace after the command's own timeout, which the sidecar enforces: time to kill the process tree and collect the
/// output.
const DEADLINE_GRACE: Duration = Duration::from_secs(30);

/// What the calls of execs share.
#[derive(Debug, Clone)]
pub(crate) struct Execs {
    pub(super) calls: Arc<Calls>,
    pub(super) gate: Arc<Admission>,
    pub(super) bodies: Reader,
}

impl Execs {
    /// Execs that take their permits from `gate`, and read the bodies of their requests with `bodies`.
    pub(crate) fn new(calls: Arc<Calls>, gate: Arc<Admission>, bodies: Reader) -> Self {
        Self { calls, gate, bodies }
    }
}

/// The result of an exec, how long it waited for admission, and how long the sidecar's call took.
pub(super) struct Outcome {
    pub(super) result: ExecResult,
    pub(super) queue: Duration,
    pub(super) sidecar: Duration,
}

/// Runs a checked request in the bearer's sandbox and returns its result.
///
/// # Errors
/// Every code that an exec can end with. The command was not started, unless the code is `stream_interrupted`,
/// `upstream_timeout`, `sandbox_unreachable` or an end cause of the sandbox.
///
/// # Cancel safety
/// Dropping it drops the call to the sidecar, whose orphan grace then decides when the command is killed.
pub(super) async fn exec(
    execs: &Execs,
    bearer: Bearer,
    request: ExecRequest,
    budget: Budget,
) -> Result<Outcome, Problem> {
    let arrived = Instant::now();
    let (route, place) = execs.calls.admit(&execs.gate, &bearer).await?;
    let queue = arrived.elapsed();
    let deadline = deadline(request.timeout_ms);
    let exec_id = request.exec_id.clone();
    let mut agent = execs.calls.agent(&route);
    let mut request = authorized(request, &bearer.header);
    // The decoded body lives on in the request until that is sent, and its share of the budget with it.
    request.extensions_mut().insert(budget);
    let sent = Instant::now();
    let answered = tokio::select! {
        biased;
        answered = execs.calls.interruptible(&route, agent.exec(request)) => answered,
        () = deadline => return Err(call::late("the end of the command", &route)),
    };
    let sidecar = sent.elapsed();
    // The exec has ended, only its cause may still be on the way: the permit is free for others.
    drop(place);
    let result = match answered {
        Ok(answer) => answer.into_inner(),
        Err(Interrupted::Ended(end)) => by_memory(end.problem(&route.sandbox_id), exec_id, sidecar)?,
        Err(interrupted @ Interrupted::Expired) => {
            return Err(interrupted.explain(&execs.calls, &route).await);
        }
        Err(Interrupted::Failed(status)) => {
            let under_way = matches!(upstream::of(&status), Loss::Broken(_));
            let problem = execs.calls.explain(&route, &status).await;
            if !under_way {
                return Err(problem);
            }
            by_memory(problem, exec_id, sidecar)?
        }
    };
    Ok(Outcome { result, queue, sidecar })
}

/// The result of a command that was under way when its sandbox exceeded its memory limit and died: the same as where
/// only the command is killed, since the command did it. Its output died with the sandbox: both streams are marked
/// truncated.
fn by_memory(problem: Problem, exec_id: String, ran: Duration) -> Result<ExecResult, Problem> {
    if problem.code != Code::OomKilled {
        return Err(problem);
    }
    let lost = Some(Output { truncated: true, ..Output::default() });
    Ok(ExecResult {
        exec_id,
        end: End::OomKilled.into(),
        signal: SIGKILL,
        stdout: lost.clone(),
        stderr: lost,
        run_us: u64::try_from(ran.as_micros()).unwrap_or(u64::MAX),
        ..ExecResult::default()
    })
}

/// Lists running and recorded execs of the bearer's sandbox. Takes no permit: it must work while all are taken.
pub(super) async fn list(execs: &Execs, bearer: &Bearer) -> Result<ListResponse, Problem> {
    let route = execs.calls.resolve(&bearer.claims.sandbox_id).await?;
    let mut agent = execs.calls.agent(&route);
    execs.calls.ask(&route, agent.list(authorized(ListRequest {}, &bearer.header))).await
}

/// Kills an exec and returns its result. Takes no permit: it must work while all are taken.
pub(super) async fn cancel(execs: &Execs, bearer: &Bearer, exec_id: String) -> Result<ExecResult, Problem> {
    let route = execs.calls.resolve(&bearer.claims.sandbox_id).await?;
    let mut agent = execs.calls.agent(&route);
    execs.calls.ask(&route, agent.cancel(authorized(CancelRequest { exec_id }, &bearer.header))).await
}

/// Kills every process of the bearer's sandbox. Takes no permit: it must work while all are taken.
pub(super) async fn cancel_all(execs: &Execs, bearer: &Bearer) -> Result<CancelledAll, Problem> {
    let route = execs.calls.resolve(&bearer.claims.sandbox_id).await?;
    let mut agent = execs.calls.agent(&route);
    execs.calls.ask(&route, agent.cancel_all(authorized(CancelAllRequest {}, &bearer.header))).await
}

/// Starts a checked request in the bearer's sandbox and returns once it runs. Safe to repeat with the same `exec_id`.
///
/// # Errors
/// As [`exec`].
pub(super) async fn start(
    execs: &Execs,
    bearer: &Bearer,
    request: ExecRequest,
    budget: Budget,
) -> Result<Started, Problem> {
    let (route, _place) = execs.calls.admit(&execs.gate, bearer).await?;
    let mut agent = execs.calls.agent(&route);
    let mut request = authorized(request, &bearer.header);
    request.extensions_mut().insert(budget);
    execs.calls.ask(&route, agent.start(request)).await
}

/// Sends a signal to a running exec, or to all its processes. Takes no permit: it must work while all are taken.
pub(super) async fn signal(execs: &Execs, bearer: &Bearer, request: SignalRequest) -> Result<(), Problem> {
    let route = execs.calls.resolve(&bearer.claims.sandbox_id).await?;
    let mut agent = execs.calls.agent(&route);
    execs.calls.ask(&route, agent.signal(authorized(request, &bearer.header))).await.map(drop)
}

/// Completes when a command with this timeout must have ended; never for a command without one.
async fn deadline(timeout_ms: u64) {
    match timeout_ms {
        0 => std::future::pending().await,
        ms => tokio::time::sleep(Duration::from_millis(ms) + DEADLINE_GRACE).await,
    }
}
