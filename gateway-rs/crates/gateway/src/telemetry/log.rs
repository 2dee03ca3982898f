use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Logs to stderr, one line per event. A subscriber that the process already has (a test's, an embedding program's)
/// stays.
pub(crate) fn install(levels: Targets) {
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    drop(tracing_subscriber::registry().with(levels).with(lines).try_init());
}
