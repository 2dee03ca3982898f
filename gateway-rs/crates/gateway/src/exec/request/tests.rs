use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn decoded(body: &Value) -> Result<ExecRequest, Problem> {
    decode(body.to_string().as_bytes(), || "made".to_owned())
}

type Decode = fn(&[u8], fn() -> String) -> Result<ExecRequest, Problem>;

#[test]
fn the_shared_vectors_hold() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../../../contract/vectors/exec.json")).unwrap();
    let all = |list: &str| vectors[list].as_array().unwrap().clone();
    let execs = all("requests").into_iter().map(|case| (case, decode as Decode));
    let starts = all("starts").into_iter().map(|case| (case, decode_start as Decode));
    for (case, decode) in execs.chain(starts) {
        let name = &case["name"];
        let outcome = decode(case["body"].as_str().unwrap().as_bytes(), || "made".to_owned());
        let problem = outcome.as_ref().err();
        assert_eq!(problem.map(|p| p.code.name()), case["code"].as_str(), "{name}: {outcome:?}");
        if let Some(field) = case["field"].as_str() {
            assert_eq!(problem.map(|p| p.details["field"].as_str()), Some(field), "{name}");
        }
        if case["position"] == json!(true) {
            let details = &problem.unwrap().details;
            assert!(details.contains_key("line") && details.contains_key("column"), "{name}");
        }
    }
}

#[test]
fn all_fields_arrive() {
    let request = decoded(&json!({
        "exec_id": "e-1", "argv": ["a", "b"], "cwd": "/tmp", "env": {"A": "1"}, "user": "root:root",
        "stdin": "aGk=", "stdin_encoding": "base64", "timeout_ms": 5, "max_output_bytes": 7,
        "max_stderr_bytes": 8, "keep": "head", "umask": 0o22,
    }))
    .unwrap();
    let expected = ExecRequest {
        exec_id: "e-1".to_owned(),
        argv: vec!["a".to_owned(), "b".to_owned()],
        cwd: "/tmp".to_owned(),
        env: [("A".to_owned(), "1".to_owned())].into(),
        user: "root:root".to_owned(),
        stdin: "hi".into(),
        timeout_ms: 5,
        max_output_bytes: 7,
        max_stderr_bytes: 8,
        keep: wire::agent::Keep::Head.into(),
        umask: Some(0o22),
        ..ExecRequest::default()
    };
    assert_eq!(request, expected);
}

#[test]
fn an_exec_without_a_name_gets_one() {
    assert_eq!(decoded(&json!({"command": "true"})).unwrap().exec_id, "made");
}

#[test]
fn limits_are_named() {
    // Short variables, but many: the kernel also counts a pointer for each.
    let many: serde_json::Map<_, _> = (0..500_000).map(|n| (n.to_string(), "".into())).collect();
    let cases = [
        (json!({"command": "a".repeat(131_072)}), "command", "131071", true),
        (json!({"argv": ["a", "b".repeat(131_072)]}), "argv[1]", "131071", true),
        (json!({"argv": ["a"], "env": {"AB": "b".repeat(131_069)}}), "env.AB", "131071", true),
        (json!({"argv": vec!["a".repeat(100_000); 63]}), "argv, command and env together", "6291456", true),
        (json!({"argv": ["a"], "env": many}), "argv, command and env together", "6291456", true),
        (json!({"command": "a", "stdin": "a".repeat((16 << 20) + 1)}), "stdin", "16777216", false),
        (json!({"command": "a", "cwd": "/".repeat(4096)}), "cwd", "4095", false),
    ];
    for (body, field, limit, for_a_kernel) in cases {
        let problem = decoded(&body).unwrap_err();
        let code = if for_a_kernel { Code::InvalidArgument } else { Code::PayloadTooLarge };
        assert_eq!(problem.code, code, "{field}");
        let reason = problem.details.get("reason").map(String::as_str);
        assert_eq!(reason, for_a_kernel.then_some("arguments_too_large"), "{field}");
        assert_eq!(
            (problem.details["field"].as_str(), problem.details["limit_bytes"].as_str()),
            (field, limit)
        );
    }
}

#[test]
fn what_fits_exactly_is_taken() {
    for body in [
        json!({"command": "a".repeat(131_071)}),
        json!({"argv": vec!["a".repeat(100_000); 62], "stdin_open": true}),
        json!({"argv": ["a"], "env": {"AB": "b".repeat(131_068)}}),
        json!({"command": "a", "stdin": "a".repeat(16 << 20)}),
        json!({"command": "a", "exec_id": "x".repeat(64), "timeout_ms": 604_800_000u64, "max_output_bytes": 16 << 20}),
    ] {
        assert!(decoded(&body).is_ok());
    }
}

proptest! {
    #[test]
    fn bytes_never_panic_and_are_refused_by_a_callers_code(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(problem) = decode(&bytes, || "made".to_owned()) {
            prop_assert!(matches!(problem.code, Code::InvalidArgument | Code::PayloadTooLarge));
        }
    }

    #[test]
    fn any_text_comes_through_as_stdin(text in "\\PC{0,100}") {
        let plain = decoded(&json!({"command": "cat", "stdin": &text})).unwrap();
        let encoded = STANDARD.encode(&text);
        let base64 = decoded(&json!({"command": "cat", "stdin": encoded, "stdin_encoding": "base64"})).unwrap();
        prop_assert_eq!(plain.stdin, text.as_bytes());
        prop_assert_eq!(base64.stdin, text.as_bytes());
    }

    #[test]
    fn a_nul_is_refused_wherever_it_stands(at in 0usize..6, text in "[a-z]{1,5}\\x00[a-z]{0,5}") {
        let bodies = [
            json!({"argv": [&text]}), json!({"command": &text}), json!({"command": "a", "cwd": &text}),
            json!({"command": "a", "user": &text}), json!({"command": "a", "env": {"A": &text}}),
            json!({"command": "a", "env": {&text: "a"}}),
        ];
        let problem = decoded(&bodies[at]).unwrap_err();
        prop_assert_eq!(problem.code, Code::InvalidArgument);
        prop_assert!(problem.detail.contains("NUL"), "{}", problem.detail);
    }
}
