//! Settings from environment variables, checked before anything is bound.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use program::feed_key::FeedKey;
use program::settings::{InvalidSetting, Read, address, count, duration, invalid, number, parsed};
use resolve::Address;
use tracing_subscriber::filter::Targets;

use crate::policy::{Blocked, Limits};

/// All settings; each field names its variable.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ROLLBOX_EGRESS_FEED_URL`: the control plane's feed. Required.
    pub feed: Address,
    /// A file named by `ROLLBOX_EGRESS_FEED_KEY_FILE`: the key that the feed asks for. Required.
    pub feed_key: FeedKey,
    /// `ROLLBOX_EGRESS_ID`: unique among the running replicas; unset: a random one.
    pub id: String,
    /// `ROLLBOX_EGRESS_LISTEN`: where metrics and probes are served.
    pub listen: Listen,
    /// `ROLLBOX_EGRESS_BLOCKED_CIDRS` (the cluster's own ranges, and whatever else no sandbox may reach) and
    /// `ROLLBOX_EGRESS_ALLOWED_PRIVATE_CIDRS` (exceptions from these, and from private addresses).
    pub blocked: Blocked,
    /// `ROLLBOX_EGRESS_DNS_SERVERS`: `IP` or `IP:PORT`, separated by commas; unset: those of `/etc/resolv.conf`.
    pub dns_servers: Vec<SocketAddr>,
    /// `ROLLBOX_EGRESS_PACKAGES_URL`: the package cache, `http://HOST:PORT`; unset: there is none.
    pub packages: Option<Address>,
    /// Where a policy has no limit of its own: `ROLLBOX_EGRESS_MAX_CONNECTIONS_PER_SANDBOX`,
    /// `ROLLBOX_EGRESS_MAX_NEW_CONNECTIONS_PER_SECOND`, `ROLLBOX_EGRESS_MAX_BYTES_PER_SECOND` and
    /// `ROLLBOX_EGRESS_MAX_TOTAL_BYTES` (both of a sandbox; 0: none), `ROLLBOX_EGRESS_MAX_CONNECTIONS_PER_OWNER`.
    pub limits: Limits,
    /// `ROLLBOX_EGRESS_MAX_CONNECTIONS`: of all sandboxes of this replica at one time.
    pub max_connections: usize,
    /// `ROLLBOX_EGRESS_CONNECT_MS`: how long a server may take to accept a connection, all its addresses together.
    pub connect: Duration,
    /// `ROLLBOX_EGRESS_IDLE_MS`: how long a connection lives on which neither side sends anything.
    pub idle: Duration,
    /// `ROLLBOX_EGRESS_DRAIN_MS`: how long open connections may continue after SIGTERM; the same for all replicas.
    pub drain: Duration,
    /// `ROLLBOX_EGRESS_HANDOVER_MS`: how long open connections of a sandbox may continue that another replica serves
    /// now; the same for all replicas.
    pub handover: Duration,
    /// `ROLLBOX_EGRESS_LOG`: level, or levels by module (`info`, `warn,egress=debug`).
    pub log: Targets,
}

/// Where a listener is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// IP address and port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// Widest exception, as lengths of prefixes: a wider one would open what it was not made for.
const WIDEST_V4: u8 = 8;
const WIDEST_V6: u8 = 16;

const DNS_PORT: u16 = 53;

impl Settings {
    /// Reads all settings through `read` (name of a variable -> its value, `None` when unset). An empty value counts
    /// as unset.
    ///
    /// # Errors
    /// The first variable that is missing or breaks its rule.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let read = |name: &str| read(name).filter(|value| !value.is_empty());
        Ok(Self {
            feed: address(&read, "ROLLBOX_EGRESS_FEED_URL")?,
            feed_key: FeedKey::read(&read, "ROLLBOX_EGRESS_FEED_KEY_FILE")?,
            id: read("ROLLBOX_EGRESS_ID").unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            listen: listen(&read)?,
            blocked: blocked(&read)?,
            dns_servers: dns_servers(&read)?,
            packages: packages(&read)?,
            limits: limits(&read)?,
            max_connections: count(number(&read, "ROLLBOX_EGRESS_MAX_CONNECTIONS", 16_384, 1, 1_000_000)?),
            connect: within(&read, "ROLLBOX_EGRESS_CONNECT_MS", 10_000, 100, 60_000)?,
            idle: within(&read, "ROLLBOX_EGRESS_IDLE_MS", 900_000, 1_000, 86_400_000)?,
            drain: duration(&read, "ROLLBOX_EGRESS_DRAIN_MS", 2_000)?,
            handover: duration(&read, "ROLLBOX_EGRESS_HANDOVER_MS", 2_000)?,
            log: parsed(&read, "ROLLBOX_EGRESS_LOG", Some("info"), "must be LEVEL or MODULE=LEVEL,...")?,
        })
    }
}

fn within(
    read: Read<'_>,
    variable: &'static str,
    default: u64,
    least: u64,
    most: u64,
) -> Result<Duration, InvalidSetting> {
    number(read, variable, default, least, most).map(Duration::from_millis)
}

fn listen(read: Read<'_>) -> Result<Listen, InvalidSetting> {
    let variable = "ROLLBOX_EGRESS_LISTEN";
    let value = read(variable).unwrap_or_else(|| "127.0.0.1:8090".to_owned());
    let path = value.strip_prefix("unix:").unwrap_or(&value);
    if path.starts_with('/') {
        return Ok(Listen::Unix(path.into()));
    }
    let rule = "must be IP:PORT or the absolute path of a unix socket";
    value.parse().map(Listen::Tcp).map_err(|_| invalid(variable, Some(&value), rule))
}

fn limits(read: Read<'_>) -> Result<Limits, InvalidSetting> {
    let most = |variable, default, most| number(read, variable, default, 1, most);
    let bytes = |variable| Ok(Some(number(read, variable, 0, 0, 1 << 50)?).filter(|bytes| *bytes > 0));
    let rate = most("ROLLBOX_EGRESS_MAX_NEW_CONNECTIONS_PER_SECOND", 100, 100_000)?;
    Ok(Limits {
        connections: Some(count(most("ROLLBOX_EGRESS_MAX_CONNECTIONS_PER_SANDBOX", 256, 256)?)),
        connections_per_second: u32::try_from(rate).ok(),
        bytes_per_second: bytes("ROLLBOX_EGRESS_MAX_BYTES_PER_SECOND")?,
        total_bytes: bytes("ROLLBOX_EGRESS_MAX_TOTAL_BYTES")?,
        owner_connections: Some(count(most("ROLLBOX_EGRESS_MAX_CONNECTIONS_PER_OWNER", 4096, 1_000_000)?)),
        // Of quotas alone.
        owner_connections_per_second: None,
        owner_bytes_per_second: None,
        owner_daily_bytes: None,
    })
}

fn blocked(read: Read<'_>) -> Result<Blocked, InvalidSetting> {
    let variable = "ROLLBOX_EGRESS_ALLOWED_PRIVATE_CIDRS";
    let excepted = nets(read, variable)?;
    let wide = |net: &&IpNet| match net {
        IpNet::V4(net) => net.prefix_len() < WIDEST_V4,
        IpNet::V6(net) => net.prefix_len() < WIDEST_V6,
    };
    if let Some(net) = excepted.iter().find(wide) {
        let rule = format!("must have no network wider than /{WIDEST_V4}, or /{WIDEST_V6} of version 6");
        return Err(invalid(variable, Some(&net.to_string()), rule));
    }
    Ok(Blocked::new(nets(read, "ROLLBOX_EGRESS_BLOCKED_CIDRS")?, excepted))
}

fn nets(read: Read<'_>, variable: &'static str) -> Result<Vec<IpNet>, InvalidSetting> {
    let refused =
        |text: &str| invalid(variable, Some(text), "must be networks like 10.0.0.0/8, separated by commas");
    // As a prefix it would be that of a host: `10.1.2.3/8` is a slip of the hand.
    let exact = |net: &IpNet| net.trunc() == *net;
    let net = |text: &str| text.parse().ok().filter(exact).ok_or_else(|| refused(text));
    listed(read, variable).iter().map(|text| net(text)).collect()
}

fn packages(read: Read<'_>) -> Result<Option<Address>, InvalidSetting> {
    let variable = "ROLLBOX_EGRESS_PACKAGES_URL";
    let parsed = |text: String| match text.parse() {
        Ok(address @ Address::Tcp { .. }) => Ok(address),
        _ => Err(invalid(variable, Some(&text), "must be `http://HOST:PORT`")),
    };
    read(variable).map(parsed).transpose()
}

fn dns_servers(read: Read<'_>) -> Result<Vec<SocketAddr>, InvalidSetting> {
    let variable = "ROLLBOX_EGRESS_DNS_SERVERS";
    let server = |text: &str| {
        let bare = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT));
        let refused = |_| invalid(variable, Some(text), "must be IP or IP:PORT, separated by commas");
        text.parse().or_else(|_| bare()).map_err(refused)
    };
    listed(read, variable).iter().map(|text| server(text)).collect()
}

fn listed(read: Read<'_>, variable: &str) -> Vec<String> {
    let value = read(variable).unwrap_or_default();
    value.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/feed.key");

    fn read(variables: &[(&str, &str)]) -> Result<Settings, InvalidSetting> {
        let required = [("FEED_URL", "unix:/run/routes.sock"), ("FEED_KEY_FILE", KEY)];
        let all: HashMap<String, String> = required
            .iter()
            .chain(variables)
            .map(|(name, value)| (format!("ROLLBOX_EGRESS_{name}"), (*value).to_owned()))
            .collect();
        Settings::read(|name| all.get(name).cloned())
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.listen, Listen::Tcp("127.0.0.1:8090".parse().unwrap()));
        assert_eq!((settings.id.len(), settings.dns_servers.len()), (36, 0));
        assert_eq!(settings.limits.connections, Some(256));
        assert_eq!((settings.limits.bytes_per_second, settings.limits.total_bytes), (None, None));
        assert_eq!((settings.connect.as_secs(), settings.idle.as_secs()), (10, 900));
    }

    #[test]
    fn everything_can_be_set() {
        let settings = read(&[
            ("ID", "egress-0"),
            ("LISTEN", "/run/egress.sock"),
            ("BLOCKED_CIDRS", "8.8.8.0/24, fd00::/8"),
            ("ALLOWED_PRIVATE_CIDRS", "127.0.0.0/8"),
            ("DNS_SERVERS", "10.0.0.2, 10.0.0.3:5353, [fd00::1]:53, fd00::2"),
            ("MAX_BYTES_PER_SECOND", "1000"),
            ("PACKAGES_URL", "http://packages.test:8080"),
            ("CONNECT_MS", "500"),
            ("IDLE_MS", "60000"),
        ])
        .unwrap();
        assert_eq!(
            (settings.id.as_str(), settings.listen),
            ("egress-0", Listen::Unix("/run/egress.sock".into()))
        );
        let servers: Vec<String> = settings.dns_servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.2:53", "10.0.0.3:5353", "[fd00::1]:53", "[fd00::2]:53"]);
        assert_eq!(settings.blocked.class("8.8.8.8".parse().unwrap()), Some("platform"));
        assert_eq!(settings.blocked.class("127.0.0.1".parse().unwrap()), None);
        assert_eq!(settings.limits.bytes_per_second, Some(1000));
        assert_eq!(settings.packages.unwrap().to_string(), "http://packages.test:8080");
        assert_eq!((settings.connect.as_millis(), settings.idle.as_secs()), (500, 60));
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
        for (name, value) in [
            ("FEED_URL", "http://host"),
            ("FEED_KEY_FILE", "/no/such/file"),
            ("LISTEN", "localhost:80"),
            ("BLOCKED_CIDRS", "10.0.0.0"),
            ("BLOCKED_CIDRS", "10.1.2.3/8"),
            ("ALLOWED_PRIVATE_CIDRS", "0.0.0.0/0"),
            ("ALLOWED_PRIVATE_CIDRS", "fd00::/8"),
            ("DNS_SERVERS", "dns.test"),
            ("PACKAGES_URL", "unix:/a.sock"),
            ("PACKAGES_URL", "packages.test:8080"),
            ("MAX_CONNECTIONS_PER_SANDBOX", "0"),
            ("MAX_TOTAL_BYTES", "-1"),
            ("DRAIN_MS", "0"),
            ("CONNECT_MS", "99"),
            ("IDLE_MS", "999"),
            ("IDLE_MS", "15m"),
            ("LOG", "loud=very"),
        ] {
            let refused = read(&[(name, value)]).unwrap_err();
            assert_eq!(refused.variable, format!("ROLLBOX_EGRESS_{name}"), "{value}");
        }
        assert_eq!(Settings::read(|_| None).unwrap_err().variable, "ROLLBOX_EGRESS_FEED_URL");
        let without = |name: &str| (!name.ends_with("KEY_FILE")).then(|| "unix:/run/routes.sock".to_owned());
        let told = Settings::read(without).unwrap_err().to_string();
        assert!(told.contains("ROLLBOX_EGRESS_FEED_KEY_FILE is not set"), "{told}");
    }
}
