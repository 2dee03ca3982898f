//! The one form in which a failure is sent: RFC 9457 over HTTP, `agent.Problem` in gRPC status details.

use std::collections::BTreeMap;
use std::fmt;

use prost::Message;
use serde_json::{Map, Value, json};

use crate::code::hint_of_reason;
use crate::{Code, agent};

/// A failure with its code, a sentence that names the value at fault, and machine-readable extras.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What went wrong: a code of the contract's table.
    pub code: Code,
    /// Names the value at fault; for human readers.
    pub detail: String,
    /// Extras for machines, by name.
    pub details: BTreeMap<String, String>,
}

impl Problem {
    /// A problem without extras.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), details: BTreeMap::new() }
    }

    /// Adds one machine-readable extra.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }

    /// What the user does next: by the reason that the details name, else by the code.
    pub fn hint(&self) -> &'static str {
        self.details.get("reason").and_then(|reason| hint_of_reason(reason)).unwrap_or(self.code.hint())
    }

    /// The body of an `application/problem+json` answer (contract: Errors).
    pub fn to_json(&self, request_id: &str, retry_after_ms: Option<u64>) -> Value {
        let mut body = Map::new();
        body.insert("type".into(), json!(format!("urn:rollbox:error:{}", self.code.name())));
        body.insert("title".into(), json!(self.code.title()));
        body.insert("status".into(), json!(self.code.http()));
        body.insert("detail".into(), json!(self.detail));
        body.insert("code".into(), json!(self.code.name()));
        body.insert("fault".into(), json!(self.code.fault().name()));
        body.insert("retry".into(), json!(self.code.retry().name()));
        body.insert("mask_sample".into(), json!(self.code.mask_sample()));
        body.insert("hint".into(), json!(self.hint()));
        body.insert("request_id".into(), json!(request_id));
        if let Some(ms) = retry_after_ms {
            body.insert("retry_after_ms".into(), json!(ms));
        }
        body.insert("details".into(), json!(self.details));
        Value::Object(body)
    }

    /// The bytes for the details of a gRPC status.
    pub fn encode(&self) -> Vec<u8> {
        agent::Problem {
            code: self.code.name().to_owned(),
            detail: self.detail.clone(),
            details: self.details.clone().into_iter().collect(),
        }
        .encode_to_vec()
    }

    /// Reads the details of a gRPC status; `None` when they are not a problem of this contract.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire = agent::Problem::decode(bytes).ok()?;
        let code = Code::from_name(&wire.code)?;
        Some(Self { code, detail: wire.detail, details: wire.details.into_iter().collect() })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.detail)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_survives_the_wire() {
        let problem = Problem::new(Code::Conflict, "key k was used with image a").with("key", "k");
        assert_eq!(Problem::decode(&problem.encode()), Some(problem));
    }

    #[test]
    fn bytes_that_are_no_problem_are_refused() {
        assert_eq!(Problem::decode(b"\xff\xff"), None);
        assert_eq!(Problem::decode(b""), None);
    }
}
