use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use wire::Problem;

use super::info::hex;
use crate::http::error::retry_after_ms;

/// The media type, requested by `Accept`, of a stream that reports how it ended.
pub(super) const TYPE: &str = "application/vnd.rollbox.frames";

const DATA: u8 = 0;
const LAST: u8 = 1;
const PROBLEM: u8 = 2;
const INFO: u8 = 3;

/// Whether the client asks for frames: their type is in `Accept`.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    let types = headers.get_all(ACCEPT).iter().filter_map(|value| HeaderValue::to_str(value).ok());
    let mut types = types.flat_map(|value| value.split(','));
    types.any(|one| one.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(TYPE)))
}

/// The head of a data frame; the data follow unchanged.
pub(super) fn data_head(data_bytes: usize) -> Bytes {
    frame(DATA, data_bytes, &[])
}

pub(super) fn data(data: &[u8]) -> Bytes {
    frame(DATA, data.len(), data)
}

pub(super) fn info(json: &[u8]) -> Bytes {
    frame(INFO, json.len(), json)
}

/// The last frame of a complete answer.
pub(super) fn last(sha256: &[u8], size_bytes: u64) -> Bytes {
    let digest = (!sha256.is_empty()).then(|| hex(sha256));
    let json = json!({"sha256": digest, "size_bytes": size_bytes}).to_string();
    frame(LAST, json.len(), json.as_bytes())
}

/// The last frame of an answer that failed.
pub(super) fn problem(problem: &Problem, request_id: &str) -> Bytes {
    let json = problem.to_json(request_id, retry_after_ms(problem.code)).to_string();
    frame(PROBLEM, json.len(), json.as_bytes())
}

/// The length fits 32 bits: the message limit of a sidecar's connection is 40 MiB.
fn frame(kind: u8, length: usize, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + payload.len());
    frame.put_u8(kind);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.put_slice(payload);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use wire::Code;

    use super::*;

    #[test]
    fn frames_have_kind_length_and_payload() {
        assert_eq!(data(b"hi").as_ref(), b"\0\0\0\0\x02hi");
        assert_eq!(data_head(258).as_ref(), b"\0\0\0\x01\x02");
        assert_eq!(&last(&[0xab], 2)[..5], b"\x01\0\0\0\x1e");
        assert_eq!(problem(&Problem::new(Code::NoSpace, "full"), "req-1")[0], PROBLEM);
    }

    #[test]
    fn frames_are_given_to_those_who_ask() {
        for (accept, expected) in [
            ("application/vnd.rollbox.frames", true),
            ("text/html, Application/vnd.rollbox.frames;q=0.5", true),
            ("*/*", false),
            ("application/vnd.rollbox.framesets", false),
        ] {
            let headers = [(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
            assert_eq!(wanted(&headers), expected, "{accept}");
        }
        assert!(!wanted(&HeaderMap::new()));
    }
}
