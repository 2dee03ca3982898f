use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::ext::ReasonPhrase;

use crate::policy::Refusal;

/// The body of an answer.
pub(super) type Body = BoxBody<Bytes, hyper::Error>;

/// Longest reason in the first line of an answer; programs read a line of some KiB.
const REASON_CHARS: usize = 400;

/// A refusal as an answer; it ends the client's connection where a request's body may follow that nobody reads.
pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    let problem = refusal.problem();
    let body = problem.to_json("", None).to_string();
    let mut response = Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::from_u16(problem.code.http()).unwrap_or(StatusCode::FORBIDDEN);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(reason) = reason(refusal) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// The sentence, for the first line: most programs show that line of a refused `CONNECT`, and hardly any its body.
fn reason(refusal: &Refusal) -> Option<ReasonPhrase> {
    let sentence = [refusal.detail.as_str(), refusal.knob].join("; ");
    let printable = |letter: char| if letter == ' ' || letter.is_ascii_graphic() { letter } else { '?' };
    let line: String = sentence.trim_end_matches("; ").chars().take(REASON_CHARS).map(printable).collect();
    ReasonPhrase::try_from(line.into_bytes()).ok()
}

/// The body of an answer that has none.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}
