//! Compares the public API in contract/openapi/gateway.yaml with the code.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

use std::collections::BTreeSet;

use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../../contract/openapi/gateway.yaml");
const ROUTER: &str = include_str!("../src/router.rs");
const VECTORS: &str = include_str!("../../../../contract/vectors/exec.json");

/// Names at `indent` under the line `head`, down to the next line that is indented less.
fn names_under(head: &str, indent: usize) -> BTreeSet<&'static str> {
    let (_, rest) = DOCUMENT.split_once(&format!("\n{head}\n")).unwrap();
    let depth = |line: &str| line.len() - line.trim_start().len();
    rest.lines()
        .take_while(|line| line.is_empty() || depth(line) >= indent)
        .filter(|line| !line.is_empty() && depth(line) == indent)
        .map(|line| line.trim_start().split(':').next().unwrap())
        .collect()
}

#[test]
fn the_document_has_the_paths_of_the_router() {
    let routed: BTreeSet<&str> =
        ROUTER.split(".route(").skip(1).map(|rest| rest.split('"').nth(1).unwrap()).collect();
    let mut documented = names_under("paths:", 2);
    // The control plane's paths, which are in a document of their own; some pass through the gateway's hands.
    documented.extend([
        "/v1/{*rest}",
        "/v1/sandboxes",
        "/v1/sandboxes/{id}",
        "/v1/groups/{name}",
        "/v1/preflight",
    ]);
    // For gateways, not through them.
    documented.insert("/v1/sandboxes/{id}/unbound");
    assert_eq!(documented, routed);
}

#[test]
fn the_document_has_the_fields_of_requests_and_results() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let whole = |list: &str| -> Value {
        let all = vectors[list].as_array().unwrap().iter().find(|case| case["name"] == "null means absent");
        serde_json::from_str(all.unwrap()["body"].as_str().unwrap()).unwrap()
    };
    let (request, start) = (whole("requests"), whole("starts"));
    let result = &vectors["answers"][0]["body"];
    for (schema, example) in [("ExecRequest", &request), ("StartRequest", &start), ("ExecResult", result)] {
        let (_, rest) = DOCUMENT.split_once(&format!("\n    {schema}:\n")).unwrap();
        let (_, properties) = rest.split_once("      properties:\n").unwrap();
        let documented: BTreeSet<&str> = properties
            .lines()
            .take_while(|line| line.starts_with("        "))
            .filter(|line| !line.starts_with("         "))
            .map(|line| line.trim().trim_end_matches(':'))
            .collect();
        let written: BTreeSet<&str> = example.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(documented, written, "{schema}");
    }
}
