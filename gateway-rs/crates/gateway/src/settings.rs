//! Settings from environment variables, checked before anything is bound.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use program::settings::{InvalidSetting, Read, address, count, duration, invalid, number, parsed, required};
use resolve::Address;
use token::Verifier;
use tracing_subscriber::filter::Targets;

use crate::certificate::{Certificate, Files};
use crate::keyed_digest::Key;

/// All settings; each field names its variable.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ROLLBOX_GATEWAY_LISTEN`: IP address and port of the public HTTP port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `ROLLBOX_GATEWAY_TLS_LISTEN`: the public port with TLS, beside the other one; unset: there is none.
    pub(crate) tls: Option<Tls>,
    /// `ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY`, or a PEM file named by `ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY_FILE`: what sandbox
    /// tokens are verified with. Exactly one of the two is required.
    pub verifier: Arc<Verifier>,
    /// A file named by `ROLLBOX_GATEWAY_SETTINGS_KEY_FILE`, of at least 32 bytes: the key of the digests that the control
    /// plane gets instead of creates' late settings; the same at all gateways, and unknown to the control plane.
    /// Required.
    pub settings_key: Key,
    /// `ROLLBOX_GATEWAY_ROUTES_URL`: the control plane's route feed. Required.
    pub routes: Address,
    /// `ROLLBOX_GATEWAY_CONTROLPLANE_URL`: the control plane's API. Required.
    pub controlplane: Address,
    /// `ROLLBOX_GATEWAY_MAX_INFLIGHT`: execs under way at one time.
    pub max_inflight: usize,
    /// `ROLLBOX_GATEWAY_MAX_INFLIGHT_PER_SANDBOX`: the same for one sandbox.
    pub max_inflight_per_sandbox: usize,
    /// `ROLLBOX_GATEWAY_MAX_STREAMS`: long-lived streams (attached clients, watches) at one time.
    pub max_streams: usize,
    /// `ROLLBOX_GATEWAY_MAX_STREAMS_PER_SANDBOX`: the same for one sandbox.
    pub max_streams_per_sandbox: usize,
    /// `ROLLBOX_GATEWAY_MAX_TRANSFERS`: file calls under way at one time.
    pub max_transfers: usize,
    /// `ROLLBOX_GATEWAY_MAX_TRANSFERS_PER_SANDBOX`: the same for one sandbox.
    pub max_transfers_per_sandbox: usize,
    /// `ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS`: connections to ports of sandboxes at one time.
    pub max_port_connections: usize,
    /// `ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS_PER_SANDBOX`: the same for one sandbox.
    pub max_port_connections_per_sandbox: usize,
    /// `ROLLBOX_GATEWAY_PORTS_DOMAIN`: sandboxes' ports are also served as `PORT-ID.DOMAIN`; unset: by path only.
    pub ports_domain: Option<String>,
    /// `ROLLBOX_GATEWAY_QUEUE_TIMEOUT_MS`: how long a call may wait for a permit.
    pub queue_timeout: Duration,
    /// `ROLLBOX_GATEWAY_MAX_BODY_BYTES`: largest body of an exec request.
    pub max_body_bytes: usize,
    /// `ROLLBOX_GATEWAY_DRAIN_MS`: how long running calls may continue after SIGTERM.
    pub drain: Duration,
    /// `ROLLBOX_GATEWAY_DNS_ZONE`: the fallback to headless Services; unset: none.
    pub dns: Option<Headless>,
    /// `ROLLBOX_GATEWAY_LOG`: level, or levels by module (`info`, `warn,gateway=debug`).
    pub log: Targets,
}

/// The public port with TLS.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// `ROLLBOX_GATEWAY_TLS_LISTEN`: its IP address and port.
    pub(crate) listen: SocketAddr,
    /// `ROLLBOX_GATEWAY_TLS_CERTIFICATE_FILE` and `ROLLBOX_GATEWAY_TLS_KEY_FILE`, in PEM.
    pub(crate) certificate: Arc<Certificate>,
}

/// DNS fallback: where sandboxes are looked up whose route was not pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headless {
    /// `ROLLBOX_GATEWAY_DNS_ZONE`: a sandbox's name is `ID.shard-N.ZONE`.
    pub zone: String,
    /// `ROLLBOX_GATEWAY_DNS_SHARDS`: the number of shards.
    pub shards: NonZeroU32,
    /// `ROLLBOX_GATEWAY_DNS_SERVER`: the name server; unset: those of `/etc/resolv.conf`.
    pub server: Option<SocketAddr>,
}

/// Default number of shards, the same as the control plane's.
const SHARDS: u64 = 16;
const MAX_SHARDS: u64 = 1024;

/// As many as the commands of a sidecar, each with one attached client. The three limits together are the
/// number of streams for which the window of a connection to a sidecar has room, however slow the readers are.
const MAX_STREAMS_PER_SANDBOX: u64 = 256;
const MAX_TRANSFERS_PER_SANDBOX: u64 = 128;
const MAX_PORT_CONNECTIONS_PER_SANDBOX: u64 = 128;

impl Settings {
    /// Reads all settings through `read` (name of a variable -> its value, `None` when unset). An empty value counts
    /// as unset.
    ///
    /// # Errors
    /// The first variable that is missing or breaks its rule.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let read = |name: &str| read(name).filter(|value| !value.is_empty());
        let max_inflight = number(&read, "ROLLBOX_GATEWAY_MAX_INFLIGHT", 4096, 1, 1_000_000)?;
        let max_streams = number(&read, "ROLLBOX_GATEWAY_MAX_STREAMS", 4096, 1, 1_000_000)?;
        let max_transfers = number(&read, "ROLLBOX_GATEWAY_MAX_TRANSFERS", 1024, 1, 1_000_000)?;
        let max_ports = number(&read, "ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS", 4096, 1, 1_000_000)?;
        Ok(Self {
            listen: parsed(&read, "ROLLBOX_GATEWAY_LISTEN", Some("127.0.0.1:7420"), "must be IP:PORT")?,
            tls: tls(&read)?,
            verifier: Arc::new(key(&read)?),
            settings_key: settings_key(&read)?,
            routes: address(&read, "ROLLBOX_GATEWAY_ROUTES_URL")?,
            controlplane: address(&read, "ROLLBOX_GATEWAY_CONTROLPLANE_URL")?,
            max_inflight: count(max_inflight),
            max_inflight_per_sandbox: count(number(
                &read,
                "ROLLBOX_GATEWAY_MAX_INFLIGHT_PER_SANDBOX",
                64.min(max_inflight),
                1,
                max_inflight,
            )?),
            max_streams: count(max_streams),
            max_streams_per_sandbox: count(number(
                &read,
                "ROLLBOX_GATEWAY_MAX_STREAMS_PER_SANDBOX",
                MAX_STREAMS_PER_SANDBOX.min(max_streams),
                1,
                MAX_STREAMS_PER_SANDBOX.min(max_streams),
            )?),
            max_transfers: count(max_transfers),
            max_transfers_per_sandbox: count(number(
                &read,
                "ROLLBOX_GATEWAY_MAX_TRANSFERS_PER_SANDBOX",
                64.min(max_transfers),
                1,
                MAX_TRANSFERS_PER_SANDBOX.min(max_transfers),
            )?),
            max_port_connections: count(max_ports),
            max_port_connections_per_sandbox: count(number(
                &read,
                "ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS_PER_SANDBOX",
                MAX_PORT_CONNECTIONS_PER_SANDBOX.min(max_ports),
                1,
                MAX_PORT_CONNECTIONS_PER_SANDBOX.min(max_ports),
            )?),
            ports_domain: ports_domain(&read)?,
            queue_timeout: duration(&read, "ROLLBOX_GATEWAY_QUEUE_TIMEOUT_MS", 30_000)?,
            max_body_bytes: count(number(&read, "ROLLBOX_GATEWAY_MAX_BODY_BYTES", 32 << 20, 1024, 1 << 30)?),
            drain: duration(&read, "ROLLBOX_GATEWAY_DRAIN_MS", 30_000)?,
            dns: headless(&read)?,
            log: parsed(&read, "ROLLBOX_GATEWAY_LOG", Some("info"), "must be LEVEL or MODULE=LEVEL,...")?,
        })
    }
}

fn key(read: Read<'_>) -> Result<Verifier, InvalidSetting> {
    let (variable, file) = ("ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY", "ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY_FILE");
    match (read(variable), read(file)) {
        (Some(key), None) => {
            Verifier::new(&key).map_err(|e| invalid(variable, Some(&key), format!("must be a key; {e}")))
        }
        (None, Some(path)) => key_of_file(&path).map_err(|rule| invalid(file, Some(&path), rule)),
        (None, None) => Err(invalid(variable, None, format!("is required, or {file}"))),
        (Some(_), Some(path)) => {
            Err(invalid(file, Some(&path), format!("must not be set together with {variable}")))
        }
    }
}

fn tls(read: Read<'_>) -> Result<Option<Tls>, InvalidSetting> {
    let (listen, certificate, key) = (
        "ROLLBOX_GATEWAY_TLS_LISTEN",
        "ROLLBOX_GATEWAY_TLS_CERTIFICATE_FILE",
        "ROLLBOX_GATEWAY_TLS_KEY_FILE",
    );
    if read(listen).is_none() {
        let stray = [certificate, key].into_iter().find_map(|variable| Some((variable, read(variable)?)));
        return stray.map_or(Ok(None), |(variable, value)| {
            Err(invalid(variable, Some(&value), format!("means nothing without {listen}")))
        });
    }
    let path = required(read, certificate)?;
    let files = Files { certificate: PathBuf::from(&path), key: PathBuf::from(required(read, key)?) };
    let used = Certificate::read(files)
        .map_err(|why| invalid(certificate, Some(&path), format!("must be usable; {why}")))?;
    Ok(Some(Tls { listen: parsed(read, listen, None, "must be IP:PORT")?, certificate: Arc::new(used) }))
}

fn settings_key(read: Read<'_>) -> Result<Key, InvalidSetting> {
    let variable = "ROLLBOX_GATEWAY_SETTINGS_KEY_FILE";
    let path = required(read, variable)?;
    let refused = |rule: String| invalid(variable, Some(&path), rule);
    let bytes = std::fs::read(&path).map_err(|e| refused(format!("must be a file that can be read; {e}")))?;
    Key::new(&bytes).ok_or_else(|| refused("must be a file of at least 32 bytes".to_owned()))
}

fn key_of_file(path: &str) -> Result<Verifier, String> {
    let pem = std::fs::read_to_string(path).map_err(|e| format!("must be a file that can be read; {e}"))?;
    Verifier::from_pem(&pem).map_err(|e| format!("must hold a key; {e}"))
}

fn headless(read: Read<'_>) -> Result<Option<Headless>, InvalidSetting> {
    let (shards, server) = ("ROLLBOX_GATEWAY_DNS_SHARDS", "ROLLBOX_GATEWAY_DNS_SERVER");
    let Some(zone) = zone(read)? else {
        let stray = [shards, server].into_iter().find_map(|variable| Some((variable, read(variable)?)));
        return match stray {
            Some((variable, value)) => {
                Err(invalid(variable, Some(&value), "means nothing without ROLLBOX_GATEWAY_DNS_ZONE"))
            }
            None => Ok(None),
        };
    };
    let shards = number(read, shards, SHARDS, 1, MAX_SHARDS)?;
    let shards = u32::try_from(shards).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    let server = match read(server) {
        Some(_) => Some(parsed(read, server, None, "must be IP:PORT")?),
        None => None,
    };
    Ok(Some(Headless { zone, shards, server }))
}

fn ports_domain(read: Read<'_>) -> Result<Option<String>, InvalidSetting> {
    let variable = "ROLLBOX_GATEWAY_PORTS_DOMAIN";
    let Some(value) = read(variable) else { return Ok(None) };
    let small = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(small)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // 180: room for a port, an id of 63 characters and what is between them in a name of 253 (RFC 1035 section 2.3.4).
    if value.len() > 180 || !value.split('.').all(label) {
        let rule = "must be a DNS name in small letters of at most 180 characters, no final dot";
        return Err(invalid(variable, Some(&value), rule));
    }
    Ok(Some(value))
}

fn zone(read: Read<'_>) -> Result<Option<String>, InvalidSetting> {
    let variable = "ROLLBOX_GATEWAY_DNS_ZONE";
    let Some(value) = read(variable) else { return Ok(None) };
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    // 178: a zone must leave room for an id of 63 characters, `shard-1023` and two dots in a name of 253 (RFC 1035
    // section 2.3.4).
    if value.len() > 178 || !value.split('.').all(label) {
        return Err(invalid(
            variable,
            Some(&value),
            "must be a DNS name of at most 178 characters, no final dot",
        ));
    }
    Ok(Some(value))
}

#[cfg(test)]
pub(crate) mod tests;
