//! Which tokens are accepted: everything but a well-formed, well-signed, unexpired one is `unauthenticated`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

use proptest::prelude::*;
use serde_json::{Value, json};
use token::{Claims, Signer, Verifier};
use wire::Code;

const NOW_S: u64 = 1_800_000_000;

fn signer() -> Signer {
    Signer::from_seed([7; 32])
}

fn verifier() -> Verifier {
    Verifier::new(&signer().public_key()).unwrap()
}

fn claims() -> Claims {
    Claims {
        sandbox_id: "sb-1".into(),
        owner: "alice".into(),
        scopes: vec!["exec".to_owned()].into(),
        expires_at_s: NOW_S + 60,
        settings: None,
    }
}

fn header() -> Value {
    json!({"alg": "EdDSA", "typ": "JWT"})
}

fn payload() -> Value {
    json!({"iss": "rollbox", "sub": "sb-1", "own": "alice", "scp": ["exec"], "iat": NOW_S, "exp": NOW_S + 60})
}

fn refusal(token: &str) -> String {
    let problem = verifier().verify(token, NOW_S).unwrap_err();
    assert_eq!(problem.code, Code::Unauthenticated);
    problem.detail
}

#[test]
fn a_good_token_gives_its_claims_the_first_time_and_from_the_cache() {
    let (verifier, token) = (verifier(), signer().sign(&claims()));
    for _ in 0..3 {
        assert_eq!(verifier.verify(&token, NOW_S), Ok(claims()));
    }
}

#[test]
fn a_token_expires_although_it_is_cached() {
    let (verifier, token) = (verifier(), signer().sign(&claims()));
    assert!(verifier.verify(&token, NOW_S + 59).is_ok());
    for _ in 0..2 {
        assert_eq!(verifier.verify(&token, NOW_S + 60).unwrap_err().detail, "the token expired 0 s ago");
    }
}

#[test]
fn a_refused_token_is_not_remembered_as_good() {
    let verifier = verifier();
    let forged = Signer::from_seed([8; 32]).sign(&claims());
    for _ in 0..2 {
        assert_eq!(
            verifier.verify(&forged, NOW_S).unwrap_err().detail,
            "the signature of the token is wrong"
        );
    }
}

#[test]
fn the_header_never_chooses_the_algorithm() {
    for alg in ["none", "HS256", "RS256", "ES256", "eddsa", "Ed25519"] {
        let token = signer().sign_raw(&json!({"alg": alg, "typ": "JWT"}), &payload());
        assert!(refusal(&token).contains("algorithm is not EdDSA"), "{alg}");
    }
}

#[test]
fn header_fields_that_change_the_meaning_are_refused() {
    for field in ["crit", "jku", "jwk", "x5u", "b64", "zip"] {
        let mut header = header();
        header[field] = json!(["exp"]);
        assert!(refusal(&signer().sign_raw(&header, &payload())).contains(field), "{field}");
    }
    assert!(
        refusal(&signer().sign_raw(&json!({"alg": "EdDSA", "typ": "at+jwt"}), &payload())).contains("type")
    );
}

#[test]
fn every_claim_is_needed_and_has_its_type() {
    for claim in ["iss", "sub", "own", "scp", "exp"] {
        let mut without = payload();
        without.as_object_mut().unwrap().remove(claim);
        assert!(refusal(&signer().sign_raw(&header(), &without)).contains(claim), "{claim} missing");
        let mut wrong = payload();
        wrong[claim] = json!({});
        assert!(
            refusal(&signer().sign_raw(&header(), &wrong)).contains("payload is wrong"),
            "{claim} mistyped"
        );
    }
}

#[test]
fn another_issuer_is_refused_by_name() {
    let mut other = payload();
    other["iss"] = json!("someone");
    assert_eq!(
        refusal(&signer().sign_raw(&header(), &other)),
        "the token was issued by \"someone\", not by rollbox"
    );
}

#[test]
fn a_token_must_have_three_parts_and_a_sane_length() {
    for token in ["", ".", "..", "a.b", "a.b.c.d"] {
        assert!(refusal(token).starts_with("the token is malformed"), "{token:?}");
    }
    assert!(refusal(&"a".repeat(5000)).contains("longer than"));
}

#[test]
fn keys_that_are_none_or_weak_are_refused() {
    let padded = format!("{}=", signer().public_key());
    for key in ["", "AAAA", "not base64!", &padded, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        assert!(Verifier::new(key).is_err(), "{key:?}");
    }
}

#[test]
fn the_shared_vectors_hold() {
    let text = include_str!("../../../../contract/vectors/token.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    let verifier = Verifier::new(vectors["public_key"].as_str().unwrap()).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let now_s = case["now_unix_s"].as_u64().unwrap();
        let outcome = verifier.verify(case["token"].as_str().unwrap(), now_s).and_then(|claims| {
            claims.allow(case["sandbox_id"].as_str().unwrap(), case["scope"].as_str().unwrap())
        });
        let code = outcome.err().map(|problem| problem.code.name());
        assert_eq!(code, case["code"].as_str(), "{}", case["name"]);
    }
}

proptest! {
    #[test]
    fn garbage_is_unauthenticated(token in "\\PC{0,300}") {
        refusal(&token);
    }

    #[test]
    fn garbage_in_the_shape_of_a_token_is_unauthenticated(token in "[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{86}") {
        refusal(&token);
    }

    #[test]
    fn any_changed_byte_of_a_good_token_is_noticed(at in 0usize..300, to in "[A-Za-z0-9_.-]") {
        let good = signer().sign(&claims());
        let at = at % good.len();
        let mut bytes = good.clone().into_bytes();
        bytes[at] = to.as_bytes()[0];
        let changed = String::from_utf8(bytes).unwrap();
        prop_assume!(changed != good);
        refusal(&changed);
    }
}
