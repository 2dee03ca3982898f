//! Answers in JSON.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

/// An answer whose body is this JSON.
pub(crate) fn response(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Appends `value` as JSON. Writing plain structs of strings and numbers to memory cannot fail.
pub(crate) fn write(json: &mut Vec<u8>, value: &impl Serialize) {
    drop(serde_json::to_writer(json, value));
}

/// Milliseconds with three decimals, since times are measured in microseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    let us = u32::try_from(duration.as_micros());
    us.map_or_else(|_| (duration.as_secs_f64() * 1e6).round() / 1e3, |us| f64::from(us) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_hours_keeps_its_microseconds() {
        assert_eq!(ms(Duration::from_micros(10_000_000_001)), 10_000_000.001);
    }
}
