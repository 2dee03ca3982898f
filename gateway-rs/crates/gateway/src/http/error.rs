//! The one place where a problem becomes an HTTP response.

use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use wire::{Code, Problem, Retry};

/// The error type of all handlers; [`render`] turns it into a response.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Problem>);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

/// Carries the problem out of the router; [`render`], which knows the request id, writes the response.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

/// Takes the problem out of a response of the router, if it carries one.
pub(crate) fn carried(response: &mut Response) -> Option<Problem> {
    response.extensions_mut().remove::<Failure>().map(|failure| *failure.0)
}

/// Builds the response for a problem: RFC 9457 with the contract's extension members.
pub(crate) fn render(problem: &Problem, request_id: &HeaderValue) -> Response {
    let wait_ms = retry_after_ms(problem.code);
    let body = problem.to_json(request_id.to_str().unwrap_or_default(), wait_ms).to_string();
    let status = StatusCode::from_u16(problem.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(ms) = wait_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
    }
    if problem.code == Code::Draining {
        // The client's next connection should go to a replica that serves.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// When a retry makes sense. One second is an estimate: longer than a turn in the queue, shorter than callers are
/// ready to wait; clients add their own jitter and backoff.
pub(crate) fn retry_after_ms(code: Code) -> Option<u64> {
    (code.retry() == Retry::Later).then_some(1000)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn every_code_becomes_its_status_and_body() {
        for code in Code::ALL {
            let problem = Problem::new(code, "example").with("name", "value");
            let response = render(&problem, &HeaderValue::from_static("req-1"));
            assert_eq!(response.status().as_u16(), code.http());
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), code.retry() == Retry::Later);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body, problem.to_json("req-1", retry_after_ms(code)));
        }
    }
}
