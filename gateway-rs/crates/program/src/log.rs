//! Lines on stderr.

use std::io::{IsTerminal as _, stderr};

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Logs to stderr, one line per event: text on a terminal, else JSON, as every part does. A subscriber that the process
/// already has (a test's, an embedding program's) stays.
pub fn install(levels: Targets) {
    let registry = tracing_subscriber::registry().with(levels);
    if stderr().is_terminal() {
        drop(registry.with(tracing_subscriber::fmt::layer().with_writer(stderr)).try_init());
    } else {
        drop(registry.with(json(stderr)).try_init());
    }
}

/// One object a line, with the event's fields beside time, level and message.
fn json<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(writer)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::json;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(data)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_object_and_no_value_breaks_it() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::registry().with(json(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(
                request_id = "req-1",
                sandbox_id = "sb-1",
                detail = "a\n\"b\" \u{1b}[31m",
                "request refused"
            );
            tracing::info!("second");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "request refused");
        assert_eq!((&lines[0]["request_id"], &lines[0]["sandbox_id"]), (&"req-1".into(), &"sb-1".into()));
        assert_eq!(lines[0]["detail"], "a\n\"b\" \u{1b}[31m");
        assert_eq!(lines[0]["level"], "WARN");
        assert!(!text.contains('\u{1b}'));
    }
}
