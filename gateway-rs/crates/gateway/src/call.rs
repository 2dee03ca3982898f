//! One call to a sandbox, of any kind: its route, its permit, what interrupts it, and how its failure is explained.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use futures_util::Stream;
use http::HeaderValue;
use resolve::{Address, Resolver, Route, RouteEnd};
use token::Verifier;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status, Streaming};
use wire::agent::agent_client::AgentClient;
use wire::{Code, Problem};

use crate::admission::{Admission, Permit};
use crate::auth::Bearer;
use crate::drain::{self, Drain};
use crate::feed::FeedState;
use crate::leg::{Leg, Way};
use crate::telemetry::Metrics;
use crate::upstream::{self, Channel, Loss, Pool, Streamed};
use program::transport::Dialer;

/// How long a failed call waits for the cause. When a sandbox dies, its connection breaks at once and its end is
/// pushed a moment later; this wait replaces "the connection broke" with the end cause. On Kubernetes the delay is the
/// kubelet's: it polls its runtime once a second, and the runtime itself needs up to two to report that memory was the
/// cause.
const END_WAIT: Duration = Duration::from_secs(5);

/// The same for a sandbox that accepts no new connection either. It has ended or soon will, so the caller is better
/// served by the cause than by a fast answer. A node that evicts a pod takes up to ten seconds to report why.
pub(crate) const GONE_WAIT: Duration = Duration::from_secs(14);

/// Timeout of calls that take the sidecar milliseconds: queries about execs and files, and cancels.
const QUESTION_DEADLINE: Duration = Duration::from_secs(15);

/// What all calls to sandboxes share: where each sandbox is, the connections to sidecars, and the shutdown.
#[derive(Debug)]
pub(crate) struct Calls {
    verifier: Arc<Verifier>,
    resolver: Arc<Resolver>,
    feed: Arc<FeedState>,
    upstream: Arc<Pool>,
    dialer: Arc<Dialer>,
    drain: Drain,
    metrics: Arc<Metrics>,
}

impl Calls {
    pub(crate) fn new(
        verifier: Arc<Verifier>,
        resolver: Arc<Resolver>,
        feed: Arc<FeedState>,
        upstream: Arc<Pool>,
        dialer: Arc<Dialer>,
        drain: Drain,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { verifier, resolver, feed, upstream, dialer, drain, metrics }
    }

    /// Verifies the tokens of callers.
    pub(crate) fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// What is known of sandboxes.
    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The progress of the shutdown.
    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Says in an answer when its sandbox ends, if its node is drained.
    pub(crate) fn tell_draining(&self, sandbox_id: &str, answer: &mut Response) {
        self.feed.draining().tell(sandbox_id, answer);
    }

    /// Registers a new call.
    ///
    /// # Errors
    /// As [`Drain::enter`].
    pub(crate) fn enter(&self) -> Result<drain::Call, Problem> {
        self.drain.enter()
    }

    /// Returns stubs for the sidecar at the end of `route`. Opens no connection yet.
    pub(crate) fn agent(&self, route: &Arc<Route>) -> AgentClient<Channel> {
        upstream::agent(&self.upstream, route)
    }

    /// Makes a leg for a call that is about to be sent.
    pub(crate) fn leg(&self, way: Way, route: &Arc<Route>) -> Leg {
        Leg::new(way, Arc::clone(&self.dialer), Arc::clone(route))
    }

    /// Returns the route of a live sandbox.
    ///
    /// # Errors
    /// The end cause of a sandbox that has ended; `sandbox_not_found` for one that the route feed does not know;
    /// `upstream_timeout` while the feed is disconnected, so that this gateway cannot tell.
    pub(crate) async fn resolve(&self, sandbox_id: &str) -> Result<Arc<Route>, Problem> {
        let found = self.resolver.resolve(sandbox_id).await;
        let route =
            found.map_err(|problem| if self.feed.is_current() { problem } else { feed_lost(problem) })?;
        self.metrics.resolved(route.source);
        Ok(route)
    }

    /// Returns a current route and a permit. The permit is taken last, so that no call holds one while it waits for a
    /// route.
    ///
    /// # Errors
    /// `capacity_unavailable`, `draining`, or the reason why the sandbox cannot be called.
    pub(crate) async fn admit(
        &self,
        gate: &Arc<Admission>,
        bearer: &Bearer,
    ) -> Result<(Arc<Route>, Permit), Problem> {
        let sandbox_id = &bearer.claims.sandbox_id;
        let route = self.resolve(sandbox_id).await?;
        let place = tokio::select! {
            biased;
            place = gate.enter(&bearer.claims.owner, sandbox_id) => place?,
            problem = self.end(&route) => return Err(problem),
            () = self.drain.started() => return Err(drain::refused()),
        };
        let route = if route.is_current() { route } else { self.resolve(sandbox_id).await? };
        route.touch();
        Ok((route, place))
    }

    /// Completes when the sandbox has ended; a move to another address does not count.
    async fn end(&self, route: &Arc<Route>) -> Problem {
        let mut route = Arc::clone(route);
        loop {
            match route.over().await {
                RouteEnd::Replaced => match self.resolver.resolve(&route.sandbox_id).await {
                    Ok(next) => route = next,
                    Err(problem) => return problem,
                },
                end => return end.problem(&route.sandbox_id),
            }
        }
    }

    /// Returns the answer to a call that takes the sidecar a moment; fails after [`QUESTION_DEADLINE`]. What it failed
    /// by may take [`GONE_WAIT`] more to be known.
    pub(crate) async fn ask<T>(
        &self,
        route: &Arc<Route>,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Problem> {
        match tokio::time::timeout(QUESTION_DEADLINE, self.interruptible(route, call)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(interrupted)) => Err(interrupted.explain(self, route).await),
            Err(_) => Err(late("an answer", route)),
        }
    }

    /// Returns the answer to a call without a timeout: a walk through many files, or all the data that a client sends.
    pub(crate) async fn ask_without_timeout<T>(
        &self,
        route: &Arc<Route>,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Problem> {
        match self.interruptible(route, call).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(interrupted) => Err(interrupted.explain(self, route).await),
        }
    }

    /// Runs a call until the sandbox ends or the drain expires. An answer that has arrived wins over both.
    ///
    /// # Cancel safety
    /// As that of `call`.
    pub(crate) async fn interruptible<T>(
        &self,
        route: &Route,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Interrupted> {
        tokio::select! {
            biased;
            answered = call => answered.map_err(Interrupted::Failed),
            end = route.over() => Err(Interrupted::Ended(end)),
            () = self.drain.expired() => Err(Interrupted::Expired),
        }
    }

    /// Returns the next message of a stream; `None` at its end.
    ///
    /// # Errors
    /// What ended the stream instead: the sandbox's end, the sidecar's problem, or the end of the drain.
    ///
    /// # Cancel safety
    /// Not cancel safe: the cause of a failure may be lost.
    pub(crate) async fn next<T>(
        &self,
        route: &Arc<Route>,
        messages: &mut Streaming<T>,
    ) -> Result<Option<T>, Problem> {
        match self.interruptible(route, messages.message()).await {
            Ok(message) => Ok(message),
            Err(interrupted) => Err(interrupted.explain(self, route).await),
        }
    }

    /// Explains a failed call: by the sandbox's end if there is one, else by the failure itself.
    pub(crate) async fn explain(&self, route: &Arc<Route>, status: &Status) -> Problem {
        let id = &route.sandbox_id;
        let began = Instant::now();
        let explained = async {
            let problem = match upstream::of(status) {
                Loss::Answered(problem) => return problem,
                Loss::Unreachable(reason) => {
                    self.resolver.directory().forget_dns(route);
                    unreachable(id, &reason)
                }
                Loss::Broken(reason) => self.broken(route, &reason).await,
            };
            let wait = if problem.code == Code::SandboxUnreachable { GONE_WAIT } else { END_WAIT };
            tokio::time::sleep_until(began + wait).await;
            problem
        };
        let mut explained = std::pin::pin!(explained);
        tokio::select! {
            biased;
            end = route.over() => match end {
                RouteEnd::Ended(tombstone) => tombstone.problem(),
                RouteEnd::Replaced | RouteEnd::Forgotten => explained.await,
            },
            problem = explained.as_mut() => problem,
        }
    }

    /// Explains a broken connection. A pod that vanished with its node breaks the connection too, only later and
    /// without a reason. It differs in accepting no new connection; then it is pointless to ask for the result again.
    async fn broken(&self, route: &Arc<Route>, reason: &str) -> Problem {
        let id = &route.sandbox_id;
        if matches!(route.address, Address::Tcp { .. })
            && let Err(gone) = self.upstream.reach(route).await
        {
            return unreachable(
                id,
                &format!("the connection broke ({reason}), and there is no other: {gone}"),
            );
        }
        let detail = format!("the connection to sandbox {id} broke while a call was under way: {reason}");
        Problem::new(Code::StreamInterrupted, detail)
    }
}

/// The sandbox may have been created since the feed was lost, and "not found" would put the fault on its caller.
fn feed_lost(problem: Problem) -> Problem {
    if problem.code != Code::SandboxNotFound {
        return problem;
    }
    let detail = "this gateway has lost the route feed of the control plane, and the sandbox is not in its route table";
    Problem { code: Code::UpstreamTimeout, detail: detail.into(), ..problem }
}

/// Why a call under way got no answer.
pub(crate) enum Interrupted {
    /// The call itself failed.
    Failed(Status),
    /// Its sandbox ended, or moved.
    Ended(RouteEnd),
    /// The grace period of the drain is over.
    Expired,
}

impl Interrupted {
    /// Returns the problem for the caller. Takes up to [`GONE_WAIT`] where the end cause is not known yet.
    pub(crate) async fn explain(self, calls: &Calls, route: &Arc<Route>) -> Problem {
        match self {
            Self::Failed(status) => calls.explain(route, &status).await,
            Self::Ended(end) => end.problem(&route.sandbox_id),
            Self::Expired => interrupted_by_drain(),
        }
    }
}

fn unreachable(sandbox_id: &str, reason: &str) -> Problem {
    Problem::new(Code::SandboxUnreachable, format!("sandbox {sandbox_id} cannot be reached: {reason}"))
}

/// Wraps a message in a request with the caller's own token, which the sidecar verifies again.
pub(crate) fn authorized<T>(message: T, header: &HeaderValue) -> Request<T> {
    let mut metadata = MetadataMap::with_capacity(1);
    if let Ok(value) = MetadataValue::try_from(header.as_bytes()) {
        metadata.insert("authorization", value);
    }
    Request::from_parts(metadata, tonic::Extensions::default(), message)
}

/// The same for a request stream, whose messages are sent as they arrive. Dropping the guard before the last message
/// aborts the call. `held` is dropped when the last message has been taken (see [`Streamed`]).
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

/// The problem for calls that are still under way when the drain expires.
pub(crate) fn interrupted_by_drain() -> Problem {
    Problem::new(Code::StreamInterrupted, "the gateway shut down while the call was under way")
}
