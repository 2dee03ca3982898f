//! Time limits that a request carries. A replica of the control plane counts them from the arrival of the request, so
//! a retry has to carry smaller ones.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Uri};

/// The header with what is left of a create's start timeout.
const LEFT: &str = "start-timeout-ms";

/// The query parameter of a delete's wait for the cluster's confirmation. 0 means no wait, so one that is used up
/// becomes 1.
const WAIT: &str = "wait_ms=";

/// Returns the head of a retry after `passed`; `None` when nothing is left of a create's start timeout. A value that
/// is not a number stays as it is: the control plane refuses it.
pub(crate) fn shortened(head: &Parts, passed: Duration) -> Option<Parts> {
    let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
    let mut head = head.clone();
    if let Some(given_ms) = head.headers.get(LEFT).and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
    {
        let left_ms = given_ms.checked_sub(passed_ms).filter(|left_ms| *left_ms > 0)?;
        head.headers.insert(LEFT, HeaderValue::from(left_ms));
    }
    if let Some(uri) = waiting_less(&head.uri, passed_ms) {
        head.uri = uri;
    }
    Some(head)
}

fn waiting_less(uri: &Uri, passed_ms: u64) -> Option<Uri> {
    let (path, query) = uri.path_and_query()?.as_str().split_once('?')?;
    let shorter = |pair: &str| match pair.strip_prefix(WAIT).and_then(|given_ms| given_ms.parse::<u64>().ok())
    {
        Some(given_ms) if given_ms > 0 => format!("{WAIT}{}", given_ms.saturating_sub(passed_ms).max(1)),
        _ => pair.to_owned(),
    };
    let query = query.split('&').map(shorter).collect::<Vec<_>>().join("&");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{path}?{query}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(passed_ms: u64, left: &str, path: &str) -> Option<(String, String)> {
        let request = http::Request::delete(format!("http://controlplane{path}")).header(LEFT, left);
        let head = request.body(()).unwrap().into_parts().0;
        let head = shortened(&head, Duration::from_millis(passed_ms))?;
        Some((head.headers[LEFT].to_str().unwrap().to_owned(), head.uri.to_string()))
    }

    #[test]
    fn a_repetition_has_what_is_left() {
        for (passed_ms, left, path, wanted) in [
            (0, "5000", "/v1/a", Some(("5000", "/v1/a"))),
            (1500, "5000", "/v1/a?wait_ms=2000", Some(("3500", "/v1/a?wait_ms=500"))),
            (
                1500,
                "5000",
                "/v1/a?label=wait_ms%3D9&wait_ms=1&x",
                Some(("3500", "/v1/a?label=wait_ms%3D9&wait_ms=1&x")),
            ),
            (1500, "1501", "/v1/a?wait_ms=0", Some(("1", "/v1/a?wait_ms=0"))),
            (1500, "1500", "/v1/a", None),
            (1500, "soon", "/v1/a?wait_ms=-1", Some(("soon", "/v1/a?wait_ms=-1"))),
        ] {
            let wanted = wanted.map(|(left, path)| (left.to_owned(), format!("http://controlplane{path}")));
            assert_eq!(after(passed_ms, left, path), wanted, "{passed_ms} {left} {path}");
        }
    }
}
