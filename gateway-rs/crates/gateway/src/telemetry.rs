//! Telemetry for operators: metrics for Prometheus.

mod metrics;
mod table;

pub(crate) use metrics::{
    AttachEnd, Connects, Direction, DnsCheck, Ended, FileOperation, FileOutcome, Gauges, Metrics, Open,
    Stream,
};
