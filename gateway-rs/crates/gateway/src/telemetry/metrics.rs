use std::sync::atomic::AtomicU64;
use std::time::Duration;

use program::metrics::{CounterBy, Labels, counters, crossed, gauges, register};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use resolve::Source;
use wire::{Code, agent};

use super::table;

/// Times and end of one exec.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) end: agent::End,
    pub(crate) queue: Duration,
    pub(crate) spawn: Duration,
    pub(crate) run: Duration,
    /// From sending the call to the sidecar to its answer: network, spawn and run.
    pub(crate) sidecar: Duration,
    /// From the token check and the decoding of the body to the encoded answer, without the wait for the body.
    pub(crate) total: Duration,
    /// Of both streams, as the answer has them.
    pub(crate) output_bytes: usize,
}

/// The outcome of an attempt to connect to a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connects {
    Connected,
    Failed,
}

/// The outcome of comparing a pushed route with DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DnsCheck {
    Agree,
    Disagree,
    /// The name does not exist.
    Absent,
    /// The look-up failed or timed out.
    Error,
}

/// The kinds of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Attach,
    Download,
    Upload,
    Watch,
}

/// The direction of data; in is from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// How an attached client's stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachEnd {
    Result,
    Problem,
    Drained,
    Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOperation {
    Read,
    Write,
    Info,
    List,
    Make,
    Move,
    Copy,
    Remove,
    ReadArchive,
    WriteArchive,
    Watch,
}

/// The outcome of a file call. Refused: the fault is the caller's or the workload's; failed: it is the platform's or
/// one of capacity; gone: the caller left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOutcome {
    Ok,
    Refused,
    Failed,
    Gone,
}

/// Counts a stream as open for as long as it lives.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Open {
    pub(crate) fn new(metrics: &Metrics, stream: Stream) -> Self {
        let gauge = metrics.streams_open.get_or_create(&[("stream", stream.name())]).clone();
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Values that are read when the metrics are scraped, not kept.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauges {
    pub(crate) inflight: usize,
    pub(crate) queued: usize,
    pub(crate) calls: usize,
    /// Memory of larger request bodies.
    pub(crate) body_bytes: usize,
    pub(crate) routes: usize,
    pub(crate) tombstones: usize,
    pub(crate) upstream_connections: usize,
    /// Time since the last message of the feed; `None` while it is not connected.
    pub(crate) feed_silence: Option<Duration>,
    /// The same, connected or not; `None` before the first message.
    pub(crate) feed_age: Option<Duration>,
    pub(crate) draining: bool,
}

/// Every metric of the gateway, in a registry of its own.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    queue: Histogram,
    spawn: Histogram,
    run: Histogram,
    sidecar: Histogram,
    total: Histogram,
    ends: CounterBy,
    output_bytes: Counter,
    errors: CounterBy<3>,
    route_lag: Histogram,
    resolved: CounterBy,
    connects: CounterBy,
    dns_checks: CounterBy,
    forwarded: CounterBy,
    streams_open: Family<Labels<1>, Gauge>,
    stream_bytes: CounterBy<2>,
    attaches: CounterBy,
    attach_ends: CounterBy,
    files: CounterBy<2>,
    pub(crate) dns_disagreements: Counter,
    pub(crate) feed_reconnects: Counter,
    pub(crate) feed_fenced: Counter,
    pub(crate) client_connections: Gauge,
    pub(crate) refused_connections: Counter,
    pub(crate) panics: Counter,
    live: Live,
}

/// The Prometheus gauges for the values of [`Gauges`].
#[derive(Debug, Default)]
struct Live {
    inflight: Gauge,
    queued: Gauge,
    calls: Gauge,
    body_bytes: Gauge,
    routes: Gauge,
    tombstones: Gauge,
    upstream_connections: Gauge,
    feed_connected: Gauge,
    feed_silence_seconds: Gauge<f64, AtomicU64>,
    feed_age_seconds: Gauge<f64, AtomicU64>,
    draining: Gauge,
}

impl Metrics {
    /// Creates all metrics at zero; every value of every label exists from the start.
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new(table::EXECS_S);
        let mut metrics = Self {
            registry: Registry::with_prefix("rollbox_gateway"),
            queue: histogram(),
            spawn: histogram(),
            run: histogram(),
            sidecar: histogram(),
            total: histogram(),
            ends: counters("end", table::EXEC_END),
            output_bytes: Counter::default(),
            errors: errors(),
            route_lag: Histogram::new(table::LAGS_S),
            resolved: counters("source", table::SOURCE),
            connects: counters("outcome", table::CONNECT_OUTCOME),
            dns_checks: counters("outcome", table::DNS_OUTCOME),
            forwarded: counters("status", table::STATUS),
            streams_open: gauges("stream", table::STREAM),
            stream_bytes: crossed("stream", table::STREAM, "direction", table::DIRECTION),
            attaches: counters("kind", table::ATTACH_KIND),
            attach_ends: counters("end", table::ATTACH_END),
            files: crossed("operation", table::FILE_OPERATION, "outcome", table::FILE_OUTCOME),
            dns_disagreements: Counter::default(),
            feed_reconnects: Counter::default(),
            feed_fenced: Counter::default(),
            client_connections: Gauge::default(),
            refused_connections: Counter::default(),
            panics: Counter::default(),
            live: Live::default(),
        };
        metrics.register_kept();
        metrics.register_streams();
        metrics.register_gauges();
        metrics
    }

    fn register_kept(&mut self) {
        let registry = &mut self.registry;
        register(registry, table::EXEC_QUEUE_SECONDS, self.queue.clone());
        register(registry, table::EXEC_SPAWN_SECONDS, self.spawn.clone());
        register(registry, table::EXEC_RUN_SECONDS, self.run.clone());
        register(registry, table::EXEC_SIDECAR_SECONDS, self.sidecar.clone());
        register(registry, table::EXEC_TOTAL_SECONDS, self.total.clone());
        register(registry, table::EXEC_ENDS, self.ends.clone());
        register(registry, table::EXEC_OUTPUT_BYTES, self.output_bytes.clone());
        register(registry, table::ERRORS, self.errors.clone());
        register(registry, table::ROUTES_RESOLVED, self.resolved.clone());
        register(registry, table::UPSTREAM_CONNECTS, self.connects.clone());
        register(registry, table::FORWARDED, self.forwarded.clone());
        register(registry, table::DNS_DISAGREEMENTS, self.dns_disagreements.clone());
        register(registry, table::DNS_CHECKS, self.dns_checks.clone());
        register(registry, table::ROUTE_LAG_SECONDS, self.route_lag.clone());
        register(registry, table::ROUTE_FEED_RECONNECTS, self.feed_reconnects.clone());
        register(registry, table::ROUTE_FEED_FENCED, self.feed_fenced.clone());
        register(registry, table::CLIENT_CONNECTIONS, self.client_connections.clone());
        register(registry, table::REFUSED_CONNECTIONS, self.refused_connections.clone());
        register(registry, table::PANICS, self.panics.clone());
    }

    fn register_streams(&mut self) {
        let registry = &mut self.registry;
        register(registry, table::STREAMS_OPEN, self.streams_open.clone());
        register(registry, table::STREAM_BYTES, self.stream_bytes.clone());
        register(registry, table::ATTACHES, self.attaches.clone());
        register(registry, table::ATTACH_ENDS, self.attach_ends.clone());
        register(registry, table::FILES, self.files.clone());
    }

    fn register_gauges(&mut self) {
        let (registry, live) = (&mut self.registry, &self.live);
        register(registry, table::EXEC_INFLIGHT, live.inflight.clone());
        register(registry, table::EXEC_QUEUED, live.queued.clone());
        register(registry, table::CALLS, live.calls.clone());
        register(registry, table::BODY_BYTES, live.body_bytes.clone());
        register(registry, table::ROUTES, live.routes.clone());
        register(registry, table::TOMBSTONES, live.tombstones.clone());
        register(registry, table::UPSTREAM_CONNECTIONS, live.upstream_connections.clone());
        register(registry, table::ROUTE_FEED_CONNECTED, live.feed_connected.clone());
        register(registry, table::ROUTE_FEED_SILENCE_SECONDS, live.feed_silence_seconds.clone());
        register(registry, table::ROUTE_FEED_AGE_SECONDS, live.feed_age_seconds.clone());
        register(registry, table::DRAINING, live.draining.clone());
    }

    pub(crate) fn exec_ended(&self, ended: &Ended) {
        self.queue.observe(ended.queue.as_secs_f64());
        self.spawn.observe(ended.spawn.as_secs_f64());
        self.run.observe(ended.run.as_secs_f64());
        self.sidecar.observe(ended.sidecar.as_secs_f64());
        self.total.observe(ended.total.as_secs_f64());
        self.ends.get_or_create(&[("end", end_name(ended.end))]).inc();
        self.output_bytes.inc_by(u64::try_from(ended.output_bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn problem(&self, code: Code) {
        self.errors.get_or_create(&labels_of(code)).inc();
    }

    /// Records how long ago what a delta of the route feed says has become known to the control plane.
    pub(crate) fn route_lag(&self, lag: Duration) {
        self.route_lag.observe(lag.as_secs_f64());
    }

    pub(crate) fn resolved(&self, source: Source) {
        let source = match source {
            Source::Table => "table",
            Source::Dns => "dns",
        };
        self.resolved.get_or_create(&[("source", source)]).inc();
    }

    pub(crate) fn connect(&self, outcome: Connects) {
        let outcome = match outcome {
            Connects::Connected => "connected",
            Connects::Failed => "failed",
        };
        self.connects.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(crate) fn dns_check(&self, outcome: DnsCheck) {
        let outcome = match outcome {
            DnsCheck::Agree => "agree",
            DnsCheck::Disagree => "disagree",
            DnsCheck::Absent => "absent",
            DnsCheck::Error => "error",
        };
        self.dns_checks.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(crate) fn forwarded(&self, status: u16) {
        let class = table::STATUS.get(usize::from(status / 100).saturating_sub(1)).unwrap_or(&"5xx");
        self.forwarded.get_or_create(&[("status", *class)]).inc();
    }

    pub(crate) fn streamed(&self, stream: Stream, direction: Direction, bytes: usize) {
        let direction = match direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let labels = [("stream", stream.name()), ("direction", direction)];
        self.stream_bytes.get_or_create(&labels).inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts an attached client, `again` when it continues from an offset.
    pub(crate) fn attached(&self, again: bool) {
        self.attaches.get_or_create(&[("kind", if again { "again" } else { "first" })]).inc();
    }

    pub(crate) fn attach_ended(&self, end: AttachEnd) {
        let end = match end {
            AttachEnd::Result => "result",
            AttachEnd::Problem => "problem",
            AttachEnd::Drained => "drained",
            AttachEnd::Left => "left",
        };
        self.attach_ends.get_or_create(&[("end", end)]).inc();
    }

    pub(crate) fn file(&self, operation: FileOperation, outcome: FileOutcome) {
        let outcome = match outcome {
            FileOutcome::Ok => "ok",
            FileOutcome::Refused => "refused",
            FileOutcome::Failed => "failed",
            FileOutcome::Gone => "gone",
        };
        self.files.get_or_create(&[("operation", operation.name()), ("outcome", outcome)]).inc();
    }

    /// Returns the OpenMetrics text, with the present values of the gauges.
    pub(crate) fn render(&self, now: &Gauges) -> String {
        self.live.set(now);
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _never = encode(&mut text, &self.registry);
        text
    }
}

impl Stream {
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Attach, Self::Download, Self::Upload, Self::Watch];

    fn name(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Watch => "watch",
        }
    }
}

impl FileOperation {
    #[cfg(test)]
    const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::Info,
        Self::List,
        Self::Make,
        Self::Move,
        Self::Copy,
        Self::Remove,
        Self::ReadArchive,
        Self::WriteArchive,
        Self::Watch,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Info => "info",
            Self::List => "list",
            Self::Make => "make",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Remove => "remove",
            Self::ReadArchive => "read_archive",
            Self::WriteArchive => "write_archive",
            Self::Watch => "watch",
        }
    }
}

impl Live {
    fn set(&self, now: &Gauges) {
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.inflight, now.inflight);
        set(&self.queued, now.queued);
        set(&self.calls, now.calls);
        set(&self.body_bytes, now.body_bytes);
        set(&self.routes, now.routes);
        set(&self.tombstones, now.tombstones);
        set(&self.upstream_connections, now.upstream_connections);
        set(&self.feed_connected, usize::from(now.feed_silence.is_some()));
        self.feed_silence_seconds.set(now.feed_silence.unwrap_or_default().as_secs_f64());
        self.feed_age_seconds.set(now.feed_age.unwrap_or_default().as_secs_f64());
        set(&self.draining, usize::from(now.draining));
    }
}

fn end_name(end: agent::End) -> &'static str {
    wire::end_name(end).unwrap_or("unspecified")
}

fn labels_of(code: Code) -> Labels<3> {
    let masked = if code.mask_sample() { "true" } else { "false" };
    [("code", code.name()), ("fault", code.fault().name()), ("masked", masked)]
}

fn errors() -> CounterBy<3> {
    let family = CounterBy::default();
    for code in Code::ALL {
        drop(family.get_or_create(&labels_of(code)));
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_every_label_is_there_from_the_start_and_no_other() {
        let metrics = Metrics::new();
        metrics.problem(Code::Deleted);
        let text = metrics.render(&Gauges { routes: 3, ..Gauges::default() });
        for code in Code::ALL {
            let fault = code.fault().name();
            let series = format!("rollbox_gateway_errors_total{{code=\"{}\",fault=\"{fault}\",", code.name());
            assert!(text.contains(&series), "{series}");
        }
        assert!(
            text.contains(
                "rollbox_gateway_errors_total{code=\"deleted\",fault=\"caller\",masked=\"true\"} 1"
            )
        );
        assert!(text.contains("rollbox_gateway_routes 3"));
        assert!(text.contains("rollbox_gateway_exec_ends_total{end=\"oom_killed\"} 0"));
        assert!(text.contains("rollbox_gateway_exec_queue_seconds_bucket{le=\"0.0001\"} 0"));
        assert!(text.contains("rollbox_gateway_files_total{operation=\"write_archive\",outcome=\"gone\"} 0"));
        assert!(text.contains("rollbox_gateway_stream_bytes_total{stream=\"upload\",direction=\"in\"} 0"));
        assert!(text.contains("rollbox_gateway_streams_open{stream=\"attach\"} 0"));
        assert!(text.contains("# UNIT rollbox_gateway_exec_queue_seconds seconds"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_names_of_label_values_are_those_of_the_table() {
        assert_eq!(Stream::ALL.map(Stream::name), table::STREAM);
        assert_eq!(FileOperation::ALL.map(FileOperation::name), table::FILE_OPERATION);
        let ends = [
            agent::End::Unspecified,
            agent::End::Exited,
            agent::End::Signalled,
            agent::End::Deadline,
            agent::End::OomKilled,
            agent::End::Cancelled,
        ];
        assert_eq!(ends.map(end_name), table::EXEC_END);
    }

    #[test]
    fn what_is_counted_adds_no_series() {
        let metrics = Metrics::new();
        let series = |metrics: &Metrics| metrics.render(&Gauges::default()).lines().count();
        let before = series(&metrics);
        for outcome in [DnsCheck::Agree, DnsCheck::Disagree, DnsCheck::Absent, DnsCheck::Error] {
            metrics.dns_check(outcome);
        }
        for end in [AttachEnd::Result, AttachEnd::Problem, AttachEnd::Drained, AttachEnd::Left] {
            metrics.attach_ended(end);
        }
        for outcome in [FileOutcome::Ok, FileOutcome::Refused, FileOutcome::Failed, FileOutcome::Gone] {
            metrics.file(FileOperation::Read, outcome);
        }
        for direction in [Direction::In, Direction::Out] {
            metrics.streamed(Stream::Watch, direction, 1);
        }
        for source in [Source::Table, Source::Dns] {
            metrics.resolved(source);
        }
        for outcome in [Connects::Connected, Connects::Failed] {
            metrics.connect(outcome);
        }
        for again in [false, true] {
            metrics.attached(again);
        }
        for status in [100, 200, 304, 404, 500] {
            metrics.forwarded(status);
        }
        metrics.route_lag(Duration::from_millis(3));
        assert_eq!(series(&metrics), before);
    }

    #[test]
    fn a_status_counts_in_its_class() {
        let metrics = Metrics::new();
        for status in [200, 201, 404, 503, 999] {
            metrics.forwarded(status);
        }
        let text = metrics.render(&Gauges::default());
        for line in ["{status=\"2xx\"} 2", "{status=\"4xx\"} 1", "{status=\"5xx\"} 2"] {
            assert!(text.contains(&format!("rollbox_gateway_forwarded_total{line}")), "{line}");
        }
    }
}
