//! Log lines for the engine's log collector: `event=… key=value …` on standard error, one line each, bounded.

use std::fmt::{Display, Write as _};
use std::io::Write as _;

const MAX_VALUE_CHARS: usize = 400;

/// Writes one line. A failure to write is ignored, since the sidecar must not fail because of its log.
pub fn event(name: &str, fields: &[(&str, &dyn Display)]) {
    let mut line = format!("event={name}");
    for (key, value) in fields {
        let _ = write!(line, " {key}={}", quoted(&value.to_string()));
    }
    line.push('\n');
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A bare value when it is one word, else a quoted one, so that no value can break the line or forge another field.
fn quoted(value: &str) -> String {
    let bounded: String = value.chars().take(MAX_VALUE_CHARS).collect();
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+".contains(c);
    if !bounded.is_empty() && bounded.chars().all(bare) { bounded } else { format!("{bounded:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_can_neither_break_the_line_nor_fake_a_field() {
        assert_eq!(quoted("unix:/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(quoted("a b=c\nd"), r#""a b=c\nd""#);
        assert_eq!(quoted(""), r#""""#);
        assert_eq!(quoted(&"x".repeat(5000)).len(), MAX_VALUE_CHARS);
    }
}
