//! One id a request, from the first line of the log to the last part that it reaches.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// In every answer, and in every request that is forwarded.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 128;

/// The request's own id when it is sane, else a made one; the only one in the headers then.
pub(crate) fn ensure(headers: &mut HeaderMap) -> HeaderValue {
    let given = headers.get(HEADER).filter(|value| is_sane(value.as_bytes())).cloned();
    let id = given.unwrap_or_else(made);
    // Also when it was given: a second one, which nobody has looked at, must not travel on beside it.
    headers.insert(HEADER, id.clone());
    id
}

/// Also an exec_id: 36 characters of `[0-9a-f-]`.
pub(crate) fn unique() -> String {
    Uuid::new_v4().to_string()
}

fn made() -> HeaderValue {
    HeaderValue::from_str(&unique()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// Nothing that could break a log line or a header of another server.
fn is_sane(id: &[u8]) -> bool {
    (1..=MAX_LENGTH).contains(&id.len())
        && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensured(given: &str) -> (HeaderValue, HeaderMap) {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(given).unwrap());
        (ensure(&mut headers), headers)
    }

    #[test]
    fn a_sane_id_is_kept() {
        assert_eq!(ensured("run-7.a:b_c").0, "run-7.a:b_c");
    }

    #[test]
    fn only_one_id_is_left() {
        let mut headers = HeaderMap::new();
        for given in ["run-7", "a b"] {
            headers.append(HEADER, HeaderValue::from_static(given));
        }
        assert_eq!(ensure(&mut headers), "run-7");
        assert_eq!(headers.get_all(HEADER).iter().count(), 1);
    }

    #[test]
    fn everything_else_is_replaced_also_for_those_who_read_the_headers_later() {
        for given in ["", "a b", "\"quoted\"", &"a".repeat(129)] {
            let (id, headers) = ensured(given);
            assert_eq!(id.len(), 36, "{given:?}");
            assert_eq!(headers[HEADER], id);
        }
    }
}
