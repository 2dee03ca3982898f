use std::time::Duration;

use program::metrics::{CounterBy, counters, crossed, register};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
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
        assert_eq!(series(), before);
        let text = metrics.render(Gauges { connections: 3, feed_connected: true, draining: false });
        for line in [
            "rollbox_egress_attempts_total{verdict=\"cut\",protocol=\"socks5\"} 1",
            "rollbox_egress_moved_bytes_total{direction=\"sent\"} 7",
            "rollbox_egress_connections_open 3",
            "rollbox_egress_feed_connected 1",
            "rollbox_egress_setup_seconds_bucket{le=\"0.002\"} 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
