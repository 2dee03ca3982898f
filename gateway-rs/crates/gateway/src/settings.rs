//! What the environment says, checked before anything is bound.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use resolve::Address;
use token::Verifier;
use tracing_subscriber::filter::Targets;

/// Everything that can be set, each by the variable that its line names.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ROLLBOX_GATEWAY_LISTEN`: IP address and port of the public HTTP port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY`: what sandbox tokens are verified with. Required.
    pub verifier: Arc<Verifier>,
    /// `ROLLBOX_GATEWAY_ROUTES_URL`: the control plane's route feed. Required.
    pub routes: Address,
    /// `ROLLBOX_GATEWAY_CONTROLPLANE_URL`: the control plane's API. Required.
    pub controlplane: Address,
    /// `ROLLBOX_GATEWAY_MAX_INFLIGHT`: execs under way at one time.
    pub max_inflight: usize,
    /// `ROLLBOX_GATEWAY_MAX_INFLIGHT_PER_SANDBOX`: the same for one sandbox.
    pub max_inflight_per_sandbox: usize,
    /// `ROLLBOX_GATEWAY_QUEUE_TIMEOUT_MS`: how long an exec may wait for its turn.
    pub queue_timeout: Duration,
    /// `ROLLBOX_GATEWAY_MAX_BODY_BYTES`: largest body of an exec request.
    pub max_body_bytes: usize,
    /// `ROLLBOX_GATEWAY_DRAIN_MS`: how long running calls may go on after SIGTERM.
    pub drain: Duration,
    /// `ROLLBOX_GATEWAY_DNS_ZONE`: zone of the headless fallback; unset: no DNS.
    pub dns_zone: Option<String>,
    /// `ROLLBOX_GATEWAY_LOG`: level, or levels by module (`info`, `warn,gateway=debug`).
    pub log: Targets,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value}: it {rule}")]
pub struct InvalidSetting {
    /// The variable.
    pub variable: &'static str,
    /// What it is set to, quoted, or `not set`.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

/// Upper end of every duration: a day in milliseconds. A larger one is a unit mistaken.
const MAX_DURATION_MS: u64 = 24 * 60 * 60 * 1000;

impl Settings {
    /// Reads all settings through `read` (name of a variable -> its value, `None` when unset). An empty value counts
    /// as unset.
    ///
    /// # Errors
    /// The first variable that is missing or breaks its rule.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let read = |name: &str| read(name).filter(|value| !value.is_empty());
        let max_inflight = number(&read, "ROLLBOX_GATEWAY_MAX_INFLIGHT", 4096, 1, 1_000_000)?;
        Ok(Self {
            listen: parsed(&read, "ROLLBOX_GATEWAY_LISTEN", Some("127.0.0.1:7420"), "must be IP:PORT")?,
            verifier: Arc::new(key(&read)?),
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
            queue_timeout: duration(&read, "ROLLBOX_GATEWAY_QUEUE_TIMEOUT_MS", 30_000)?,
            max_body_bytes: count(number(&read, "ROLLBOX_GATEWAY_MAX_BODY_BYTES", 32 << 20, 1024, 1 << 30)?),
            drain: duration(&read, "ROLLBOX_GATEWAY_DRAIN_MS", 30_000)?,
            dns_zone: zone(&read)?,
            log: parsed(&read, "ROLLBOX_GATEWAY_LOG", Some("info"), "must be LEVEL or MODULE=LEVEL,...")?,
        })
    }
}

type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

fn invalid(variable: &'static str, value: Option<&str>, rule: impl Into<String>) -> InvalidSetting {
    let value = value.map_or_else(|| "not set".to_owned(), |value| format!("{value:?}"));
    InvalidSetting { variable, value, rule: rule.into() }
}

fn required(read: Read<'_>, variable: &'static str) -> Result<String, InvalidSetting> {
    read(variable).ok_or_else(|| invalid(variable, None, "is required"))
}

fn parsed<T: FromStr>(
    read: Read<'_>,
    variable: &'static str,
    default: Option<&str>,
    rule: &str,
) -> Result<T, InvalidSetting> {
    let value = match (read(variable), default) {
        (Some(value), _) => value,
        (None, Some(default)) => default.to_owned(),
        (None, None) => return Err(invalid(variable, None, rule)),
    };
    value.parse().map_err(|_| invalid(variable, Some(&value), rule))
}

fn number(
    read: Read<'_>,
    variable: &'static str,
    default: u64,
    least: u64,
    most: u64,
) -> Result<u64, InvalidSetting> {
    let Some(value) = read(variable) else { return Ok(default) };
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| invalid(variable, Some(&value), format!("must be an integer of {least} to {most}")))
}

/// All counts are at most 2^30, checked by `number`.
fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn duration(read: Read<'_>, variable: &'static str, default_ms: u64) -> Result<Duration, InvalidSetting> {
    number(read, variable, default_ms, 1, MAX_DURATION_MS).map(Duration::from_millis)
}

fn address(read: Read<'_>, variable: &'static str) -> Result<Address, InvalidSetting> {
    let value = required(read, variable)?;
    value.parse().map_err(|e: resolve::InvalidAddress| invalid(variable, Some(&value), e.to_string()))
}

fn key(read: Read<'_>) -> Result<Verifier, InvalidSetting> {
    let variable = "ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY";
    let value = required(read, variable)?;
    Verifier::new(&value).map_err(|e| invalid(variable, Some(&value), format!("must be a key; {e}")))
}

fn zone(read: Read<'_>) -> Result<Option<String>, InvalidSetting> {
    let variable = "ROLLBOX_GATEWAY_DNS_ZONE";
    let Some(value) = read(variable) else { return Ok(None) };
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    // 189: a zone must leave room for an id of 63 characters and its dot in a name of 253 (RFC 1035 section 2.3.4).
    if value.len() > 189 || !value.split('.').all(label) {
        return Err(invalid(
            variable,
            Some(&value),
            "must be a DNS name of at most 189 characters, no final dot",
        ));
    }
    Ok(Some(value))
}

#[cfg(test)]
pub(crate) mod tests;
