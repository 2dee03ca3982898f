use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use hickory_resolver::TokioResolver;

use crate::Address;

/// The port on which sidecars listen inside a pod (settings of the sidecar: `tcp:0.0.0.0:7070`).
const SIDECAR_PORT: u16 = 7070;

/// A name has no address, or nobody said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct LookupFailed {
    /// The name that was asked for.
    pub host: String,
    /// What the resolver said.
    pub reason: String,
}

/// Host name -> addresses. A trait so that tests need no name server.
pub trait Lookup: Send + Sync {
    /// The addresses of `host`, a full name without a final dot; best first, at least one.
    ///
    /// # Errors
    /// [`LookupFailed`] when there is none or the name server does not answer.
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>>;
}

/// The name servers of `/etc/resolv.conf`, asked by a resolver written in Rust: glibc's blocks a thread per question.
pub struct SystemLookup {
    resolver: TokioResolver,
}

impl SystemLookup {
    /// Reads the system's configuration. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with `/etc/resolv.conf`.
    pub fn new() -> Result<Self, LookupFailed> {
        let failed =
            |e: &dyn fmt::Display| LookupFailed { host: "/etc/resolv.conf".into(), reason: e.to_string() };
        let mut builder = TokioResolver::builder_tokio().map_err(|e| failed(&e))?;
        // A sandbox's name appears when it starts: an answer that it is unknown must not be remembered.
        builder.options_mut().negative_max_ttl = Some(std::time::Duration::ZERO);
        let resolver = builder.build().map_err(|e| failed(&e))?;
        Ok(Self { resolver })
    }
}

impl Lookup for SystemLookup {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
        Box::pin(async move {
            // The final dot keeps the search list of resolv.conf out.
            let answer = self.resolver.lookup_ip(format!("{host}.")).await;
            let failed = |reason: String| LookupFailed { host: host.to_owned(), reason };
            let addresses: Vec<IpAddr> = answer.map_err(|e| failed(e.to_string()))?.iter().collect();
            if addresses.is_empty() { Err(failed("no address".to_owned())) } else { Ok(addresses) }
        })
    }
}

/// The headless fallback: `ID.ZONE` on the sidecars' port.
pub struct Dns {
    lookup: Box<dyn Lookup>,
    zone: String,
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dns").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl Dns {
    /// Asks `lookup` for names in `zone` (for example `sandboxes.rollbox.svc.cluster.local`).
    pub fn new(lookup: Box<dyn Lookup>, zone: impl Into<String>) -> Self {
        Self { lookup, zone: zone.into() }
    }

    /// The address of a sandbox's sidecar.
    ///
    /// # Errors
    /// [`LookupFailed`]; also for an id that is no DNS label, which is never asked for.
    pub async fn address(&self, sandbox_id: &str) -> Result<Address, LookupFailed> {
        let host = format!("{sandbox_id}.{}", self.zone);
        if !is_label(sandbox_id) {
            return Err(LookupFailed { host, reason: "the id is no DNS label".to_owned() });
        }
        let addresses = self.lookup.lookup(&host).await?;
        let first =
            addresses.first().ok_or_else(|| LookupFailed { host, reason: "no address".to_owned() })?;
        Ok(Address::Tcp { host: first.to_string(), port: SIDECAR_PORT })
    }
}

/// RFC 1123 section 2.1. Without it an id with a dot could name a host outside its own label.
fn is_label(id: &str) -> bool {
    let inside = id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inside && (1..=63).contains(&id.len()) && !id.starts_with('-') && !id.ends_with('-')
}
