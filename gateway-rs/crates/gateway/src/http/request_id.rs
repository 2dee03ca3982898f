//! One id per request, in the log and in every part that the request reaches.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// In every response, and in every request that is forwarded.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 128;

/// Returns the request's own id if that is valid, else a new one, and makes it the only one in the headers.
pub(crate) fn ensure(headers: &mut HeaderMap) -> HeaderValue {
    let given = headers.get(HEADER).filter(|value| is_sane(value.as_bytes())).cloned();
    let id = given.unwrap_or_else(made);
    // Also when it was given: a second id, which was not checked, must not be forwarded beside it.
    headers.insert(HEADER, id.clone());
    id
}

/// Also valid as an `exec_id`: 36 characters of `[0-9a-f-]`.
pub(crate) fn unique() -> String {
    Uuid::new_v4().to_string()
}

fn made() -> HeaderValue {
    HeaderValue::from_str(&unique()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// Whether an id can break neither a log line nor a header of another server.
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
