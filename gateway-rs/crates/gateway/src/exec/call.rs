use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use resolve::{Address, Fate, Route};
use tokio::time::Instant;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status};
use wire::agent::{CancelRequest, End, ExecRequest, ExecResult, ListRequest, ListResponse, Output};
use wire::{Code, Problem};

use crate::admission::Permit;
use crate::auth::Bearer;
use crate::body::Budget;
use crate::drain;
use crate::gateway::Gateway;
use crate::telemetry::Ended;
use crate::upstream::{self, Loss};

/// A sandbox's death closes its connection at once, and is pushed a moment later. Waiting that moment turns "the
/// connection broke" into the cause. On Kubernetes the moment is the kubelet's: it looks at its runtime once a second,
/// and the runtime itself needs up to two to say that memory was the cause.
const END_WAIT: Duration = Duration::from_secs(5);

/// The same for a sandbox that no new connection reaches either: it is gone or as good as, and the caller is better
/// served by the cause than by haste. A node that evicts takes up to ten seconds to say why.
const GONE_WAIT: Duration = Duration::from_secs(14);

const SIGKILL: u32 = 9;

/// On top of the command's own timeout, which the sidecar enforces: to kill the tree and collect the output.
const DEADLINE_GRACE: Duration = Duration::from_secs(30);

/// For questions about execs and for cancels, which take the sidecar milliseconds.
const QUESTION_DEADLINE: Duration = Duration::from_secs(15);

/// What an exec came to, and how long it waited for its turn.
pub(super) struct Outcome {
    pub(super) result: ExecResult,
    pub(super) queue: Duration,
}

/// Runs a checked request in the bearer's sandbox and waits for its end.
///
/// # Errors
/// Every code that an exec can end with; nothing of it was started unless the code is `stream_interrupted`,
/// `upstream_timeout`, `sandbox_unreachable` or a sandbox's end.
///
/// # Cancel safety
/// Dropping it drops the call to the sidecar, whose orphan grace then decides over the command.
pub(super) async fn exec(
    gateway: &Gateway,
    bearer: Bearer,
    request: ExecRequest,
    budget: Budget,
) -> Result<Outcome, Problem> {
    let arrived = Instant::now();
    let (route, place) = admit(gateway, &bearer).await?;
    let queue = arrived.elapsed();
    let deadline = deadline(request.timeout_ms);
    let exec_id = request.exec_id.clone();
    let mut agent = gateway.upstream.agent(&route);
    let mut request = authorized(request, &bearer.header);
    // What was decoded from the body lives on in the request, until that is sent.
    request.extensions_mut().insert(budget);
    // In this order: an answer that is there counts, whatever else is true by now.
    let answered = tokio::select! {
        biased;
        answered = agent.exec(request) => answered.map_err(Cut::Failed),
        fate = route.over() => Err(Cut::Ended(fate)),
        () = gateway.drain.expired() => return Err(cut_off()),
        () = deadline => return Err(late("the end of the command", &route)),
    };
    // It is over; only its cause may be a moment away.
    drop(place);
    let ran = || arrived.elapsed().saturating_sub(queue);
    let result = match answered {
        Ok(answer) => answer.into_inner(),
        Err(Cut::Ended(fate)) => by_memory(fate.problem(&route.sandbox_id), exec_id, ran())?,
        Err(Cut::Failed(status)) => {
            let under_way = matches!(upstream::of(&status), Loss::Broken(_));
            let problem = explain(gateway, &route, &status).await;
            if !under_way {
                return Err(problem);
            }
            by_memory(problem, exec_id, ran())?
        }
    };
    gateway.metrics.exec_ended(&Ended {
        end: result.end(),
        queue,
        spawn: Duration::from_micros(result.spawn_us),
        run: Duration::from_micros(result.run_us),
        total: arrived.elapsed(),
    });
    Ok(Outcome { result, queue })
}

/// Why an exec under way got no answer.
enum Cut {
    /// The call itself failed.
    Failed(Status),
    /// Its sandbox ended, or moved.
    Ended(Fate),
}

/// The result of a command that was under way when its sandbox passed its memory limit and died of it: the command's
/// own doing, as where only the command is killed. What it wrote died with the sandbox: both streams are marked so.
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

/// Running and recorded execs of the bearer's sandbox. Takes no place: it must work while all are taken.
pub(super) async fn list(gateway: &Gateway, bearer: &Bearer) -> Result<ListResponse, Problem> {
    let route = resolve(gateway, &bearer.claims.sandbox_id).await?;
    let mut agent = gateway.upstream.agent(&route);
    ask(gateway, &route, agent.list(authorized(ListRequest {}, &bearer.header))).await
}

/// Kills an exec and gives its result. Takes no place: it must work while all are taken.
pub(super) async fn cancel(
    gateway: &Gateway,
    bearer: &Bearer,
    exec_id: String,
) -> Result<ExecResult, Problem> {
    let route = resolve(gateway, &bearer.claims.sandbox_id).await?;
    let mut agent = gateway.upstream.agent(&route);
    ask(gateway, &route, agent.cancel(authorized(CancelRequest { exec_id }, &bearer.header))).await
}

/// A route that is true and a place to use it. The place is waited for last, so that nobody holds one idle.
async fn admit(gateway: &Gateway, bearer: &Bearer) -> Result<(Arc<Route>, Permit), Problem> {
    let sandbox_id = &bearer.claims.sandbox_id;
    let route = resolve(gateway, sandbox_id).await?;
    let place = tokio::select! {
        biased;
        place = gateway.admission.enter(&bearer.claims.owner, sandbox_id) => place?,
        problem = end(gateway, &route) => return Err(problem),
        () = gateway.drain.started() => return Err(drain::refused()),
    };
    if route.is_current() { Ok((route, place)) } else { Ok((resolve(gateway, sandbox_id).await?, place)) }
}

async fn resolve(gateway: &Gateway, sandbox_id: &str) -> Result<Arc<Route>, Problem> {
    let route = gateway.resolver.resolve(sandbox_id).await?;
    gateway.metrics.resolved(route.source);
    Ok(route)
}

/// Completes when the sandbox has ended; a move to another address is none.
async fn end(gateway: &Gateway, route: &Arc<Route>) -> Problem {
    let mut route = Arc::clone(route);
    loop {
        match route.over().await {
            Fate::Replaced => match gateway.resolver.resolve(&route.sandbox_id).await {
                Ok(next) => route = next,
                Err(problem) => return problem,
            },
            fate => return fate.problem(&route.sandbox_id),
        }
    }
}

async fn ask<T>(
    gateway: &Gateway,
    route: &Arc<Route>,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Problem> {
    let answered = tokio::select! {
        biased;
        answered = call => answered,
        fate = route.over() => return Err(fate.problem(&route.sandbox_id)),
        () = gateway.drain.expired() => return Err(cut_off()),
        () = tokio::time::sleep(QUESTION_DEADLINE) => return Err(late("an answer", route)),
    };
    match answered {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(explain(gateway, route, &status).await),
    }
}

/// What a failed call is answered with: the sandbox's end when there is one, else what the failure says.
async fn explain(gateway: &Gateway, route: &Arc<Route>, status: &Status) -> Problem {
    let id = &route.sandbox_id;
    let began = Instant::now();
    let said = async {
        let problem = match upstream::of(status) {
            Loss::Answered(problem) => return problem,
            Loss::Unreachable(reason) => {
                gateway.resolver.directory().forget_dns(route);
                unreachable(id, &reason)
            }
            Loss::Broken(reason) => broken(gateway, route, &reason).await,
        };
        let wait = if problem.code == Code::SandboxUnreachable { GONE_WAIT } else { END_WAIT };
        tokio::time::sleep_until(began + wait).await;
        problem
    };
    let mut said = std::pin::pin!(said);
    tokio::select! {
        biased;
        fate = route.over() => match fate {
            Fate::Ended(tombstone) => tombstone.problem(),
            Fate::Replaced | Fate::Forgotten => said.await,
        },
        problem = said.as_mut() => problem,
    }
}

/// A pod that vanished with its node breaks the connection too, only later, and says nothing either. The difference is
/// that it takes no other: then there is no use in asking for the result again.
async fn broken(gateway: &Gateway, route: &Arc<Route>, reason: &str) -> Problem {
    let id = &route.sandbox_id;
    if matches!(route.address, Address::Tcp { .. })
        && let Err(gone) = gateway.upstream.reach(route).await
    {
        return unreachable(id, &format!("the connection broke ({reason}), and there is no other: {gone}"));
    }
    let detail = format!("the connection to sandbox {id} broke while the command was under way: {reason}");
    Problem::new(Code::StreamInterrupted, detail)
}

fn unreachable(sandbox_id: &str, reason: &str) -> Problem {
    Problem::new(Code::SandboxUnreachable, format!("sandbox {sandbox_id} cannot be reached: {reason}"))
}

fn authorized<T>(message: T, header: &HeaderValue) -> Request<T> {
    let mut metadata = MetadataMap::with_capacity(1);
    if let Ok(value) = MetadataValue::try_from(header.as_bytes()) {
        metadata.insert("authorization", value);
    }
    Request::from_parts(metadata, tonic::Extensions::default(), message)
}

/// Completes when a command with this timeout must have ended; never for one without.
async fn deadline(timeout_ms: u64) {
    match timeout_ms {
        0 => std::future::pending().await,
        ms => tokio::time::sleep(Duration::from_millis(ms) + DEADLINE_GRACE).await,
    }
}

fn late(what: &str, route: &Route) -> Problem {
    Problem::new(Code::UpstreamTimeout, format!("sandbox {} did not give {what} in time", route.sandbox_id))
}

fn cut_off() -> Problem {
    Problem::new(Code::StreamInterrupted, "the gateway shut down while the command was under way")
}
