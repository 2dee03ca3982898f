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

/// How long an answer may be cached: a Service that was recreated has another address.
const POSITIVE_TTL: Duration = Duration::from_secs(1);

/// A name has no address, or no name server answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct LookupFailed {
    /// The name that was looked up.
    pub host: String,
    /// The resolver's message.
    pub reason: String,
    /// Whether a name server answered that there is no such name, or no address for it.
    pub absent: bool,
}

/// Host name -> addresses. A trait so that tests need no name server.
pub trait Lookup: Send + Sync {
    /// Returns the addresses of `host`, a name without a final dot; best first, at least one.
    ///
    /// # Errors
    /// [`LookupFailed`] when there is none or the name server does not answer.
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>>;
}

/// Name servers, queried by a resolver written in Rust: glibc's blocks one thread per query, and a static binary does
/// not have it.
pub struct NameServers {
    resolver: TokioResolver,
    /// Appended to every name: a dot disables the search list of resolv.conf.
    end: &'static str,
}

impl fmt::Debug for NameServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameServers").finish_non_exhaustive()
    }
}

impl NameServers {
    /// The servers of `/etc/resolv.conf`, or `servers` where there are any, for fully qualified names. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// What is wrong with `/etc/resolv.conf`.
    pub fn full_names(servers: &[SocketAddr]) -> Result<Self, LookupFailed> {
        Self::build(servers, ".")
    }

    /// The servers of `/etc/resolv.conf` with its search list, as other programs use them. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// What is wrong with `/etc/resolv.conf`.
    pub fn system() -> Result<Self, LookupFailed> {
        Self::build(&[], "")
    }

    fn build(servers: &[SocketAddr], end: &'static str) -> Result<Self, LookupFailed> {
        let failed = |e: &dyn fmt::Display| LookupFailed {
            host: "/etc/resolv.conf".into(),
            reason: e.to_string(),
            absent: false,
        };
        let mut builder = match servers {
            [] => TokioResolver::builder_tokio().map_err(|e| failed(&e))?,
            servers => TokioResolver::builder_with_config(only(servers), TokioRuntimeProvider::default()),
        };
        // A sandbox's name appears when the sandbox starts, so negative answers must not be cached.
        builder.options_mut().negative_max_ttl = Some(Duration::ZERO);
        builder.options_mut().positive_max_ttl = Some(POSITIVE_TTL);
        let resolver = builder.build().map_err(|e| failed(&e))?;
        Ok(Self { resolver, end })
    }
}

fn only(servers: &[SocketAddr]) -> ResolverConfig {
    ResolverConfig::from_name_servers(servers.iter().copied().map(name_server).collect())
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.into())
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

/// The fallback to headless Services: `ID.shard-N.ZONE` on the sidecars' port.
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
    /// Resolves names with `lookup` in `zone` (for example `rollbox-sandboxes.svc.cluster.local`), which has this many
    /// headless Services.
    pub fn new(lookup: Box<dyn Lookup>, zone: impl Into<String>, shards: NonZeroU32) -> Self {
        Self { lookup, zone: zone.into(), shards }
    }

    /// Returns the addresses of a sandbox's sidecar, best first, at least one.
    ///
    /// # Errors
    /// [`LookupFailed`]; also for an id that is not a DNS label, which is never looked up.
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

/// Whether `id` is a DNS label (RFC 1123 section 2.1). Without this check an id with a dot could name a host outside
/// its own label.
fn is_label(id: &str) -> bool {
    let inside = id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inside && (1..=63).contains(&id.len()) && !id.starts_with('-') && !id.ends_with('-')
}
