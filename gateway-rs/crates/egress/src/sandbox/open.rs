use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::egress::{Attempt, Verdict};

use crate::policy::{Blocked, Host, Policy, Refusal, Target, Tls};
use crate::report::now_ms;

/// How a program asked for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// A request in absolute form: each one is decided on.
    Http,
    Connect,
    Socks5,
    /// A request to the package cache: the target is the index that it is for.
    Packages,
}

impl Protocol {
    /// As reports and metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Connect => "connect",
            Self::Socks5 => "socks5",
            Self::Packages => "packages",
        }
    }

    /// Whether this side speaks HTTP itself, so that no TLS is looked at.
    fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Packages)
    }

    /// Decides by name, as this way needs it.
    ///
    /// # Errors
    /// The policy does not allow it.
    pub(crate) fn decide<'a>(self, policy: &'a Policy, target: &Target) -> Result<&'a str, Refusal> {
        match self {
            Self::Packages => policy.target(target),
            _ => policy.direct(target),
        }
    }

    /// Decides by the address that would be dialled. That of the package cache is the platform's own.
    ///
    /// # Errors
    /// The policy does not allow it.
    pub(crate) fn decide_address(
        self,
        policy: &Policy,
        target: &Target,
        address: IpAddr,
        blocked: &Blocked,
    ) -> Result<(), Refusal> {
        match self {
            Self::Packages => Ok(()),
            _ => policy.address(target, address, blocked),
        }
    }
}

/// A connection to a server that stands.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) target: Target,
    pub(super) address: IpAddr,
    pub(super) protocol: Protocol,
    pub(super) policy: Box<str>,
    pub(super) rule: Box<str>,
    /// The date that it was let in with.
    pub(super) until: Box<str>,
    /// How its TLS is looked at: by the policy that has let it in.
    pub(super) tls: Tls,
    /// Its server name, once that was read.
    pub(super) server_name: Mutex<Option<Host>>,
    pub(super) cut: CancellationToken,
    pub(super) ended: CancellationToken,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Why it ends, if that is not its peers' doing.
    pub(super) why: Mutex<Option<Verdict>>,
    pub(super) began: Instant,
    /// When anything was moved last, in ms since `began`.
    pub(super) moved_ms: AtomicU64,
}

impl Open {
    /// `cut` closes it when it is cancelled, by a switch or with the sandbox.
    pub(super) fn new(
        cut: CancellationToken,
        target: Target,
        address: IpAddr,
        protocol: Protocol,
        rule: Box<str>,
        policy: &Policy,
    ) -> Self {
        let tls = if protocol.is_http() { Tls::Free } else { policy.tls(&target) };
        Self {
            tls,
            target,
            address,
            protocol,
            policy: policy.name().into(),
            rule,
            until: policy.until().into(),
            server_name: Mutex::default(),
            cut,
            ended: CancellationToken::new(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            why: Mutex::default(),
            began: Instant::now(),
            moved_ms: AtomicU64::new(0),
        }
    }

    /// Whether a policy lets it stay.
    pub(super) fn is_allowed(&self, policy: &Policy, blocked: &Blocked) -> bool {
        self.protocol.decide(policy, &self.target).is_ok()
            && self.protocol.decide_address(policy, &self.target, self.address, blocked).is_ok()
            && (self.protocol != Protocol::Packages || *self.until == *policy.until())
            && (self.protocol.is_http() || self.is_allowed_tls(policy))
    }

    /// A connection whose TLS nobody looked at does not stay where it counts.
    fn is_allowed_tls(&self, policy: &Policy) -> bool {
        let named = self.server_name.lock().unwrap_or_else(PoisonError::into_inner);
        match (policy.tls(&self.target), self.tls) {
            (Tls::Free, _) => true,
            (_, Tls::Free) => false,
            _ => named.as_ref().is_none_or(|name| policy.server_name(&self.target, Some(name)).is_ok()),
        }
    }

    /// Notes that something was moved.
    pub(super) fn moves(&self) {
        self.moved_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    /// For how long nothing was moved.
    pub(super) fn quiet(&self) -> Duration {
        Duration::from_millis(self.age_ms().saturating_sub(self.moved_ms.load(Ordering::Relaxed)))
    }

    pub(super) fn age_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it was told to close.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Tells it to close; returns what is cancelled when it has.
    pub(super) fn cut(&self) -> CancellationToken {
        self.cut.cancel();
        self.ended.clone()
    }

    pub(super) fn attempt(&self, sandbox_id: &str, verdict: Verdict) -> Attempt {
        Attempt {
            sandbox_id: sandbox_id.to_owned(),
            at_ms: now_ms(),
            host: self.target.host.to_string(),
            port: self.target.port.into(),
            address: self.address.to_string(),
            verdict: verdict.into(),
            policy: self.policy.to_string(),
            rule: self.rule.to_string(),
            protocol: self.protocol.name().to_owned(),
            count: 1,
            ..Attempt::default()
        }
    }
}
