//! Metrics for Prometheus.

mod metrics;
mod table;

pub(crate) use metrics::{Gauges, Metrics};
