//! One call to a sandbox, of whatever kind: its route, its place, what interrupts it and what its failure means.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use http::HeaderValue;
use resolve::{Address, Fate, Route};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status, Streaming};
use wire::{Code, Problem};

use crate::admission::{Admission, Permit};
use crate::auth::Bearer;
use crate::drain;
use crate::gateway::Gateway;
use crate::upstream::{self, Loss, Streamed};

/// A sandbox's death closes its connection at once, and is pushed a moment later. Waiting that moment turns "the
/// connection broke" into the cause. On Kubernetes the moment is the kubelet's: it looks at its runtime once a second,
/// and the runtime itself needs up to two to say that memory was the cause.
const END_WAIT: Duration = Duration::from_secs(5);

/// The same for a sandbox that no new connection reaches either: it is gone or as good as, and the caller is better
/// served by the cause than by haste. A node that evicts takes up to ten seconds to say why.
pub(crate) const GONE_WAIT: Duration = Duration::from_secs(14);

/// For questions about execs and files and for cancels, which take the sidecar milliseconds.
const QUESTION_DEADLINE: Duration = Duration::from_secs(15);

/// A route that is true and a place to use it. The place is waited for last, so that nobody holds one idle.
///
/// # Errors
/// `capacity_unavailable`, `draining`, or whatever keeps the sandbox from being called.
pub(crate) async fn admit(
    gateway: &Gateway,
    gate: &Arc<Admission>,
    bearer: &Bearer,
) -> Result<(Arc<Route>, Permit), Problem> {
    let sandbox_id = &bearer.claims.sandbox_id;
    let route = resolve(gateway, sandbox_id).await?;
    let place = tokio::select! {
        biased;
        place = gate.enter(&bearer.claims.owner, sandbox_id) => place?,
        problem = end(gateway, &route) => return Err(problem),
        () = gateway.drain.started() => return Err(drain::refused()),
    };
    let route = if route.is_current() { route } else { resolve(gateway, sandbox_id).await? };
    route.touch();
    Ok((route, place))
}

/// The route of a sandbox that lives.
///
/// # Errors
/// The end cause of one that ended; `sandbox_not_found` for one that the control plane does not know, by this gateway's
/// feed; `upstream_timeout` where this gateway does not hear the feed, and so cannot say.
pub(crate) async fn resolve(gateway: &Gateway, sandbox_id: &str) -> Result<Arc<Route>, Problem> {
    let found = gateway.resolver.resolve(sandbox_id).await;
    let route =
        found.map_err(|problem| if gateway.feed.is_current() { problem } else { unheard(problem) })?;
    gateway.metrics.resolved(route.source);
    Ok(route)
}

/// The sandbox may have begun since the control plane was last heard, and a "not found" would be its caller's fault.
fn unheard(problem: Problem) -> Problem {
    if problem.code != Code::SandboxNotFound {
        return problem;
    }
    let detail =
        "this gateway does not hear the control plane at the moment, and has not heard of the sandbox before";
    Problem { code: Code::UpstreamTimeout, detail: detail.into(), ..problem }
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

/// The answer to a call that takes the sidecar a moment.
pub(crate) async fn ask<T>(
    gateway: &Gateway,
    route: &Arc<Route>,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Problem> {
    match tokio::time::timeout(QUESTION_DEADLINE, patiently(gateway, route, call)).await {
        Ok(answered) => answered,
        Err(_) => Err(late("an answer", route)),
    }
}

/// The answer to a call that takes as long as it takes: a walk through many files, or all the data that a client sends.
pub(crate) async fn patiently<T>(
    gateway: &Gateway,
    route: &Arc<Route>,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Problem> {
    match uncut(gateway, route, call).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(cut) => Err(cut.explain(gateway, route).await),
    }
}

/// Why a call under way got no answer.
pub(crate) enum Cut {
    /// The call itself failed.
    Failed(Status),
    /// Its sandbox ended, or moved.
    Ended(Fate),
    /// The drain is over.
    Expired,
}

impl Cut {
    /// What the caller is told. Takes up to [`GONE_WAIT`] where the cause has to be waited for.
    pub(crate) async fn explain(self, gateway: &Gateway, route: &Arc<Route>) -> Problem {
        match self {
            Self::Failed(status) => explain(gateway, route, &status).await,
            Self::Ended(fate) => fate.problem(&route.sandbox_id),
            Self::Expired => cut_off(),
        }
    }
}

/// What comes of a call unless something ends it before. An answer that is there counts, whatever else is true by now.
///
/// # Cancel safety
/// As that of `call`.
pub(crate) async fn uncut<T>(
    gateway: &Gateway,
    route: &Route,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Cut> {
    tokio::select! {
        biased;
        answered = call => answered.map_err(Cut::Failed),
        fate = route.over() => Err(Cut::Ended(fate)),
        () = gateway.drain.expired() => Err(Cut::Expired),
    }
}

/// The next message of a stream; `None` at its end.
///
/// # Errors
/// What ended the stream instead: the sandbox's end, the sidecar's problem, the end of the drain.
///
/// # Cancel safety
/// Not cancel safe: the cause of a failure may be lost.
pub(crate) async fn next<T>(
    gateway: &Gateway,
    route: &Arc<Route>,
    messages: &mut Streaming<T>,
) -> Result<Option<T>, Problem> {
    match uncut(gateway, route, messages.message()).await {
        Ok(message) => Ok(message),
        Err(cut) => Err(cut.explain(gateway, route).await),
    }
}

/// What a failed call is answered with: the sandbox's end when there is one, else what the failure says.
pub(crate) async fn explain(gateway: &Gateway, route: &Arc<Route>, status: &Status) -> Problem {
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
    let detail = format!("the connection to sandbox {id} broke while a call was under way: {reason}");
    Problem::new(Code::StreamInterrupted, detail)
}

fn unreachable(sandbox_id: &str, reason: &str) -> Problem {
    Problem::new(Code::SandboxUnreachable, format!("sandbox {sandbox_id} cannot be reached: {reason}"))
}

/// A message with the caller's own token: the sidecar verifies it again.
pub(crate) fn authorized<T>(message: T, header: &HeaderValue) -> Request<T> {
    let mut metadata = MetadataMap::with_capacity(1);
    if let Ok(value) = MetadataValue::try_from(header.as_bytes()) {
        metadata.insert("authorization", value);
    }
    Request::from_parts(metadata, tonic::Extensions::default(), message)
}

/// The same for a request of many messages, which go out as they come. Dropping the guard before their end breaks the
/// call off. `held` is given back when the last of them has been taken (see [`Streamed`]).
pub(crate) fn streamed<S: Stream>(
    messages: S,
    header: &HeaderValue,
    held: impl Any + Send + Sync,
) -> (Request<S>, DropGuard) {
    let (streamed, guard) = Streamed::new(held);
    let mut request = authorized(messages, header);
    request.extensions_mut().insert(streamed);
    (request, guard)
}

pub(crate) fn late(what: &str, route: &Route) -> Problem {
    Problem::new(Code::UpstreamTimeout, format!("sandbox {} did not give {what} in time", route.sandbox_id))
}

/// For what is still under way at the end of the drain.
pub(crate) fn cut_off() -> Problem {
    Problem::new(Code::StreamInterrupted, "the gateway shut down while the call was under way")
}
