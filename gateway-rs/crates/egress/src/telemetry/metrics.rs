use std::time::Duration;

use program::metrics::{CounterBy, Labels, counters, crossed, register};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use wire::egress::Verdict;

use super::table;

/// Values that are read when the metrics are scraped, not kept.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauges {
    /// Connections of programs under way.
    pub(crate) connections: usize,
    pub(crate) feed_connected: bool,
    pub(crate) draining: bool,
}

/// Every metric of egress, in a registry of its own.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    attempts: CounterBy<2>,
    link_opens: CounterBy,
    limited: CounterBy,
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) lookup: Histogram,
    setup: Histogram,
    switch: Histogram,
    packages_requests: CounterBy<2>,
    packages_bytes: CounterBy,
    packages_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    pub(crate) sandboxes: Gauge,
    pub(crate) links: Gauge,
    pub(crate) feed_reconnects: Counter,
    pub(crate) attempts_unreported: Counter,
    connections: Gauge,
    feed_connected: Gauge,
    draining: Gauge,
}

impl Default for Metrics {
    /// All at zero; every value of every label exists from the start.
    fn default() -> Self {
        let histogram = || Histogram::new(table::LAGS_S);
        let bytes = counters("direction", table::EGRESS_DIRECTION);
        let direction = |name| bytes.get_or_create(&[("direction", name)]).clone();
        let mut metrics = Self {
            registry: Registry::with_prefix("rollbox_egress"),
            attempts: crossed("verdict", table::EGRESS_VERDICT, "protocol", table::EGRESS_PROTOCOL),
            link_opens: counters("outcome", table::CONNECT_OUTCOME),
            limited: counters("limit", table::EGRESS_LIMIT),
            sent_bytes: direction("sent"),
            received_bytes: direction("received"),
            lookup: histogram(),
            setup: histogram(),
            switch: histogram(),
            packages_requests: crossed("index", table::PACKAGES_INDEX, "result", table::PACKAGES_RESULT),
            packages_bytes: counters("result", table::PACKAGES_RESULT),
            packages_seconds: packages_seconds(),
            sandboxes: Gauge::default(),
            links: Gauge::default(),
            feed_reconnects: Counter::default(),
            attempts_unreported: Counter::default(),
            connections: Gauge::default(),
            feed_connected: Gauge::default(),
            draining: Gauge::default(),
        };
        metrics.register(bytes);
        metrics
    }
}

impl Metrics {
    fn register(&mut self, bytes: CounterBy) {
        let registry = &mut self.registry;
        register(registry, table::SANDBOXES, self.sandboxes.clone());
        register(registry, table::LINKS, self.links.clone());
        register(registry, table::LINK_OPENS, self.link_opens.clone());
        register(registry, table::CONNECTIONS_OPEN, self.connections.clone());
        register(registry, table::ATTEMPTS, self.attempts.clone());
        register(registry, table::LIMITED, self.limited.clone());
        register(registry, table::MOVED_BYTES, bytes);
        register(registry, table::LOOKUP_SECONDS, self.lookup.clone());
        register(registry, table::SETUP_SECONDS, self.setup.clone());
        register(registry, table::SWITCH_SECONDS, self.switch.clone());
        register(registry, table::PACKAGES_REQUESTS, self.packages_requests.clone());
        register(registry, table::PACKAGES_BYTES, self.packages_bytes.clone());
        register(registry, table::PACKAGES_SECONDS, self.packages_seconds.clone());
        register(registry, table::FEED_CONNECTED, self.feed_connected.clone());
        register(registry, table::FEED_RECONNECTS, self.feed_reconnects.clone());
        register(registry, table::ATTEMPTS_UNREPORTED, self.attempts_unreported.clone());
        register(registry, table::DRAINING, self.draining.clone());
    }

    /// Counts a connection or request that is over.
    pub(crate) fn attempt(&self, verdict: Verdict, protocol: &'static str) {
        self.attempts.get_or_create(&[("verdict", name(verdict)), ("protocol", protocol)]).inc();
    }

    /// Counts a connection that a limit has refused or ended.
    pub(crate) fn limited(&self, limit: &'static str) {
        self.limited.get_or_create(&[("limit", limit)]).inc();
    }

    /// Counts an attempt to open a link.
    pub(crate) fn link_open(&self, up: bool) {
        self.link_opens.get_or_create(&[("outcome", if up { "connected" } else { "failed" })]).inc();
    }

    /// How long it took to decide on a target and to connect to it.
    pub(crate) fn set_up(&self, took: Duration) {
        self.setup.observe(took.as_secs_f64());
    }

    /// How long it took until a new policy was in force.
    pub(crate) fn switched(&self, took: Duration) {
        self.switch.observe(took.as_secs_f64());
    }

    /// Counts an allowed request to the package cache; returns what counts the bytes of its answer.
    pub(crate) fn packages(&self, index: &str, result: &'static str, took: Duration) -> Counter {
        let known = table::PACKAGES_INDEX.into_iter().find(|known| *known == index).unwrap_or("other");
        self.packages_requests.get_or_create(&[("index", known), ("result", result)]).inc();
        self.packages_seconds.get_or_create(&[("result", result)]).observe(took.as_secs_f64());
        self.packages_bytes.get_or_create(&[("result", result)]).clone()
    }

    /// Returns the OpenMetrics text, with the present values of the gauges.
    pub(crate) fn render(&self, now: Gauges) -> String {
        self.connections.set(i64::try_from(now.connections).unwrap_or(i64::MAX));
        self.feed_connected.set(now.feed_connected.into());
        self.draining.set(now.draining.into());
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _never = encode(&mut text, &self.registry);
        text
    }
}

fn packages_seconds() -> Family<Labels<1>, Histogram, fn() -> Histogram> {
    let family = Family::<_, _, fn() -> Histogram>::new_with_constructor(|| Histogram::new(table::STARTS_S));
    for result in table::PACKAGES_RESULT {
        drop(family.get_or_create(&[("result", result)]));
    }
    family
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allowed => "allowed",
        Verdict::DeniedName => "denied_name",
        Verdict::DeniedAddress => "denied_address",
        Verdict::DeniedTls => "denied_tls",
        Verdict::DeniedLimit => "denied_limit",
        Verdict::BadRequest | Verdict::Unspecified => "bad_request",
        Verdict::Unresolved => "unresolved",
        Verdict::Unreachable => "unreachable",
        Verdict::Cut => "cut",
        Verdict::NameServerSilent => "name_server_silent",
        Verdict::PackagesSilent => "packages_silent",
        Verdict::Idle => "idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_adds_no_series() {
        let metrics = Metrics::default();
        let series = || metrics.render(Gauges::default()).lines().count();
        let before = series();
        for verdict in (1..12).map(|number| Verdict::try_from(number).unwrap()) {
            assert!(table::EGRESS_VERDICT.contains(&name(verdict)));
            for protocol in table::EGRESS_PROTOCOL {
                metrics.attempt(verdict, protocol);
            }
        }
        for limit in table::EGRESS_LIMIT {
            metrics.limited(limit);
        }
        for up in [false, true] {
            metrics.link_open(up);
        }
        metrics.set_up(Duration::from_millis(3));
        metrics.switched(Duration::from_millis(3));
        metrics.sent_bytes.inc_by(7);
        for (index, result) in [("pypi.org", "hit"), ("a.test", "silent")] {
            metrics.packages(index, result, Duration::from_millis(3)).inc_by(5);
        }
        assert_eq!(series(), before);
        let text = metrics.render(Gauges { connections: 3, feed_connected: true, draining: false });
        for line in [
            "rollbox_egress_attempts_total{verdict=\"cut\",protocol=\"socks5\"} 1",
            "rollbox_egress_moved_bytes_total{direction=\"sent\"} 7",
            "rollbox_egress_connections_open 3",
            "rollbox_egress_packages_requests_total{index=\"pypi.org\",result=\"hit\"} 1",
            "rollbox_egress_packages_requests_total{index=\"other\",result=\"silent\"} 1",
            "rollbox_egress_packages_bytes_total{result=\"hit\"} 5",
            "rollbox_egress_packages_seconds_bucket{le=\"0.005\",result=\"hit\"} 1",
            "rollbox_egress_feed_connected 1",
            "rollbox_egress_setup_seconds_bucket{le=\"0.002\"} 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
