//! Metrics for Prometheus, declared by a generated table.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// Labels from fixed sets of values; never an id.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counters by labels.
pub type CounterBy<const N: usize = 1> = Family<Labels<N>, Counter>;

/// One metric of the table.
#[derive(Debug)]
pub struct Row {
    /// Without what the registry prefixes, and without its unit.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The unit.
    pub unit: Option<Unit>,
}

/// Registers a metric under its row.
pub fn register(registry: &mut Registry, row: Row, metric: impl Metric) {
    match row.unit {
        Some(unit) => registry.register_with_unit(row.name, row.help, unit, metric),
        None => registry.register(row.name, row.help, metric),
    }
}

/// Counters by one label, each of its values from the start.
pub fn counters<const N: usize>(label: &'static str, values: [&'static str; N]) -> CounterBy {
    let family = CounterBy::default();
    for value in values {
        drop(family.get_or_create(&[(label, value)]));
    }
    family
}

/// Counters by two labels, each pair of their values from the start.
pub fn crossed<const N: usize, const M: usize>(
    first: &'static str,
    values: [&'static str; N],
    second: &'static str,
    others: [&'static str; M],
) -> CounterBy<2> {
    let family = CounterBy::default();
    for value in values {
        for other in others {
            drop(family.get_or_create(&[(first, value), (second, other)]));
        }
    }
    family
}

/// Gauges by one label, each of its values from the start.
pub fn gauges<const N: usize>(label: &'static str, values: [&'static str; N]) -> Family<Labels<1>, Gauge> {
    let family = Family::default();
    for value in values {
        drop(family.get_or_create(&[(label, value)]));
    }
    family
}
