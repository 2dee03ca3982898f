use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::WaitForCancellationFutureOwned;
use wire::egress::{Attempt, Verdict};

use super::open::{Open, Protocol};
use super::state::Sandbox;
use crate::policy::{Host, Refusal, Target, Tls};

/// What changes how long a connection may be idle.
const IDLE: &str = "send something now and then; operators: egress.limits.idleSeconds of the chart (rollbox up: \
                    ROLLBOX_EGRESS_IDLE_MS)";

/// The right to an open connection: on record from its begin to its drop, and cut by a switch that does not allow it.
#[derive(Debug)]
pub(crate) struct Passage {
    sandbox: Arc<Sandbox>,
    key: u64,
    open: Arc<Open>,
}

impl Passage {
    /// Lets a connection pass whose target and address are decided on, by the policy that is in force now.
    ///
    /// # Errors
    /// The policy has changed meanwhile, and does not allow it any more.
    pub(crate) fn admit(
        sandbox: &Arc<Sandbox>,
        target: Target,
        address: IpAddr,
        protocol: Protocol,
    ) -> Result<Self, Refusal> {
        let mut state = sandbox.lock();
        let policy = Arc::clone(&state.policy);
        let rule: Box<str> = protocol.decide(&policy, &target)?.into();
        protocol.decide_address(&policy, &target, address, &sandbox.common.blocked)?;
        if sandbox.closed.is_cancelled() {
            let detail = format!("{target}: this replica does not serve the sandbox any more");
            return Err(policy.refusal(Verdict::Cut, "", detail));
        }
        let key = state.next;
        state.next += 1;
        let open =
            Arc::new(Open::new(sandbox.closed.child_token(), target, address, protocol, rule, &policy));
        state.open.insert(key, Arc::clone(&open));
        drop(state);
        sandbox.common.reports.attempt(open.attempt(&sandbox.id, Verdict::Allowed));
        Ok(Self { sandbox: Arc::clone(sandbox), key, open })
    }

    /// The date that it was let in with; empty: none.
    pub(crate) fn until(&self) -> &str {
        &self.open.until
    }

    /// How its TLS has to look.
    pub(crate) fn tls(&self) -> Tls {
        self.open.tls
    }

    /// Decides on the server name of its TLS, by the policy in force.
    ///
    /// # Errors
    /// It is not allowed.
    pub(crate) fn named(&self, name: Option<&Host>) -> Result<(), Refusal> {
        // Under the lock of switches: one that comes now sees the name.
        let state = self.sandbox.lock();
        let decided = state.policy.server_name(&self.open.target, name);
        *self.open.server_name.lock().unwrap_or_else(PoisonError::into_inner) = name.cloned();
        decided
    }

    /// A refusal because of its TLS.
    pub(crate) fn refused_tls(&self, why: &str) -> Refusal {
        let detail = format!("{}: {why}", self.open.target);
        self.sandbox.policy().refusal(Verdict::DeniedTls, "", detail)
    }

    /// Completes when it has to close.
    pub(crate) fn cut(&self) -> WaitForCancellationFutureOwned {
        self.open.cut.clone().cancelled_owned()
    }

    /// Whether it has to close.
    pub(crate) fn is_cut(&self) -> bool {
        self.open.is_cut()
    }

    /// Completes once neither side has sent anything for as long as a connection may be idle; why it has to end then.
    pub(crate) async fn idle(&self) -> Refusal {
        let most = self.sandbox.common.idle;
        while let Some(left) = most.checked_sub(self.open.quiet()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
        let detail =
            format!("{}: neither side has sent anything for {} s", self.open.target, most.as_secs_f64());
        let refusal = self.sandbox.policy().refusal(Verdict::Idle, "", detail);
        Refusal { knob: IDLE, ..refusal }
    }

    /// Counts data from the sandbox; returns how long to wait before more.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn sent(&self, bytes: usize) -> Result<Duration, Refusal> {
        self.count(&self.open.sent, &self.sandbox.common.metrics.sent_bytes, bytes)
    }

    /// The same for data to the sandbox.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn received(&self, bytes: usize) -> Result<Duration, Refusal> {
        self.count(&self.open.received, &self.sandbox.common.metrics.received_bytes, bytes)
    }

    fn count(&self, count: &AtomicU64, all: &Counter, bytes: usize) -> Result<Duration, Refusal> {
        let more = u64::try_from(bytes).unwrap_or(u64::MAX);
        count.fetch_add(more, Ordering::Relaxed);
        self.open.moves();
        all.inc_by(more);
        self.sandbox.moved(bytes)
    }

    /// Says why it ends; the first reason counts, and a cut before it.
    pub(crate) fn ends(&self, why: &Refusal) {
        if self.is_cut() {
            return;
        }
        self.open.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why.verdict);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.sandbox.lock().open.remove(&self.key);
        let why = *self.open.why.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = self.open.is_cut().then_some(Verdict::Cut);
        let verdict = why.or(cut).unwrap_or(Verdict::Allowed);
        self.sandbox.common.metrics.attempt(verdict, self.open.protocol.name());
        self.sandbox.common.reports.attempt(Attempt {
            sent_bytes: self.open.sent.load(Ordering::Relaxed),
            received_bytes: self.open.received.load(Ordering::Relaxed),
            // An end, however soon it comes, is no begin.
            duration_ms: self.open.age_ms().max(1),
            ..self.open.attempt(&self.sandbox.id, verdict)
        });
        self.open.ended.cancel();
    }
}
