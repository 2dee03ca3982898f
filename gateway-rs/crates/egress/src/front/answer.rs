use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};

use crate::policy::Refusal;

/// The body of an answer.
pub(super) type Body = BoxBody<Bytes, hyper::Error>;

/// A refusal as an answer; it ends the client's connection where a request's body may follow that nobody reads.
pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    let problem = refusal.problem();
    let body = problem.to_json("", None).to_string();
    let mut response = Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::from_u16(problem.code.http()).unwrap_or(StatusCode::FORBIDDEN);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The body of an answer that has none.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}
