use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

use crate::{Address, shard};

/// The port on which sidecars listen inside a pod (settings of the sidecar: `tcp:0.0.0.0:7070`).
const SIDECAR_PORT: u16 = 7070;

/// An answer may be repeated for so long: a service that was made again has another address.
const POSITIVE_TTL: Duration = Duration::from_secs(1);

/// A name has no address, or nobody said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct LookupFailed {
    /// The name that was asked for.
    pub host: String,
    /// What the resolver said.
    pub reason: String,
    /// The name server knows that there is no such name, or no address for it.
    pub absent: bool,
}

/// Host name -> addresses. A trait so that tests need no name server.
pub trait Lookup: Send + Sync {
    /// The addresses of `host`, a name without a final dot; best first, at least one.
    ///
    /// # Errors
    /// [`LookupFailed`] when there is none or the name server does not answer.
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>>;
}

/// Name servers, asked by a resolver written in Rust: glibc's blocks a thread per question, and a static binary has
/// none.
pub struct NameServers {
    resolver: TokioResolver,
    /// What is put behind every name: a dot keeps the search list of resolv.conf out.
    end: &'static str,
}

impl fmt::Debug for NameServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameServers").finish_non_exhaustive()
    }
}

impl NameServers {
    /// Those of `/etc/resolv.conf`, or `server` alone, for full names. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with `/etc/resolv.conf`.
    pub fn full_names(server: Option<SocketAddr>) -> Result<Self, LookupFailed> {
        Self::build(server, ".")
    }

    /// Those of `/etc/resolv.conf` with its search list, as other programs use them. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// What is wrong with `/etc/resolv.conf`.
    pub fn system() -> Result<Self, LookupFailed> {
        Self::build(None, "")
    }

    fn build(server: Option<SocketAddr>, end: &'static str) -> Result<Self, LookupFailed> {
        let failed = |e: &dyn fmt::Display| LookupFailed {
            host: "/etc/resolv.conf".into(),
            reason: e.to_string(),
            absent: false,
        };
        let mut builder = match server {
            Some(server) => TokioResolver::builder_with_config(only(server), TokioRuntimeProvider::default()),
            None => TokioResolver::builder_tokio().map_err(|e| failed(&e))?,
        };
        // A sandbox's name appears when it starts: an answer that it is unknown must not be remembered.
        builder.options_mut().negative_max_ttl = Some(Duration::ZERO);
        builder.options_mut().positive_max_ttl = Some(POSITIVE_TTL);
        let resolver = builder.build().map_err(|e| failed(&e))?;
        Ok(Self { resolver, end })
    }
}

fn only(server: SocketAddr) -> ResolverConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    ResolverConfig::from_name_servers(vec![NameServerConfig::new(server.ip(), true, connections.into())])
}

impl Lookup for NameServers {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
        Box::pin(async move {
            let answer = self.resolver.lookup_ip(format!("{host}{}", self.end)).await;
            let failed = |reason: String, absent| LookupFailed { host: host.to_owned(), reason, absent };
            let addresses = answer.map_err(|e| failed(e.to_string(), e.is_no_records_found()))?;
            let addresses: Vec<IpAddr> = addresses.iter().collect();
            if addresses.is_empty() { Err(failed("no address".to_owned(), true)) } else { Ok(addresses) }
        })
    }
}

/// The headless fallback: `ID.shard-N.ZONE` on the sidecars' port.
pub struct Dns {
    lookup: Box<dyn Lookup>,
    zone: String,
    shards: NonZeroU32,
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dns").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl Dns {
    /// Asks `lookup` for names in `zone` (for example `rollbox-sandboxes.svc.cluster.local`), which has this many
    /// headless services.
    pub fn new(lookup: Box<dyn Lookup>, zone: impl Into<String>, shards: NonZeroU32) -> Self {
        Self { lookup, zone: zone.into(), shards }
    }

    /// The addresses of a sandbox's sidecar, best first, at least one.
    ///
    /// # Errors
    /// [`LookupFailed`]; also for an id that is no DNS label, which is never asked for.
    pub async fn addresses(&self, sandbox_id: &str) -> Result<Vec<Address>, LookupFailed> {
        let host = format!("{sandbox_id}.shard-{}.{}", shard(sandbox_id, self.shards), self.zone);
        let absent = |host, reason: &str| LookupFailed { host, reason: reason.to_owned(), absent: true };
        if !is_label(sandbox_id) {
            return Err(absent(host, "the id is no DNS label"));
        }
        let addresses = self.lookup.lookup(&host).await?;
        let sidecar = |ip: IpAddr| Address::Tcp { host: ip.to_string(), port: SIDECAR_PORT };
        if addresses.is_empty() {
            return Err(absent(host, "no address"));
        }
        Ok(addresses.into_iter().map(sidecar).collect())
    }
}

/// RFC 1123 section 2.1. Without it an id with a dot could name a host outside its own label.
fn is_label(id: &str) -> bool {
    let inside = id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inside && (1..=63).contains(&id.len()) && !id.starts_with('-') && !id.ends_with('-')
}
