//! Telemetry for operators: metrics for Prometheus, logs on stderr.

mod log;
mod metrics;
mod table;

pub(crate) use log::install as install_log;
pub(crate) use metrics::{
    AttachEnd, Connects, Direction, DnsCheck, Ended, FileOperation, FileOutcome, Gauges, Metrics, Open,
    Stream,
};
