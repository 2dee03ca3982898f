//! Requests to the package cache: which index a policy allows, and what the cache is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::{Server, head};
use support::{Relay, Rig, allows, denies, rule};
use tokio::io::AsyncReadExt as _;
use wire::egress::{Mode, Policy, Verdict};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const UNTIL: &str = "2024-06-01T00:00:00Z";

/// The cache is at an address that no policy can reach, as in a cluster.
async fn rig(policy: &Policy) -> (Rig, Relay, Server) {
    let cache = Server::listen("127.32.0.1").await;
    let rig = Rig::with(&[("PACKAGES_URL", &format!("http://127.32.0.1:{}", cache.port()))]).await;
    let relay = rig.sandbox("sb-1", policy).await;
    (rig, relay, cache)
}

fn dated(hosts: &[&str]) -> Policy {
    let allow = hosts.iter().map(|host| rule(host)).collect();
    let dated = vec![rule("pypi.org"), rule("*.npmjs.org")];
    Policy { allow, dated, until: UNTIL.to_owned(), ..support::policy("packages", Mode::Dated) }
}

fn get(path: &str, more: &str) -> Vec<u8> {
    let host = "packages.rollbox.internal";
    format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").into_bytes()
}

#[tokio::test]
async fn a_request_for_an_allowed_index_goes_to_the_cache() {
    let (rig, relay, mut cache) = rig(&allows(&["pypi.org"])).await;
    let mut program = relay.program().await;
    let forged = "X-Rollbox-Index: evil.test\r\nX-Rollbox-Until: 2099-01-01T00:00:00Z\r\nAuthorization: Basic eA==\r\n\
                  Cookie: a=b\r\nAccept: text/html\r\n";
    program.send(&get("/pypi.org/simple/six/?a=1", forged)).await;
    let got = cache.answer(ANSWER).await.to_lowercase();
    assert!(got.starts_with("get /pypi.org/simple/six/?a=1 http/1.1\r\n"), "{got}");
    for header in
        ["host: packages.rollbox.internal\r\n", "x-rollbox-index: pypi.org\r\n", "accept: text/html\r\n"]
    {
        assert_eq!(got.matches(header).count(), 1, "{got}");
    }
    assert!(!got.contains("evil") && !got.contains("until") && !got.contains("authorization"), "{got}");
    assert!(!got.contains("cookie"), "{got}");
    assert!(program.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(program.exactly(5).await, b"hello");
    let told = rig.feed.attempt_with(|attempt| attempt.duration_ms > 0).await;
    assert_eq!((told.host.as_str(), told.port, told.protocol.as_str()), ("pypi.org", 443, "packages"));
    assert_eq!(told.rule, "rule pypi.org");
    assert_eq!(rig.names.asked(), [""; 0]);
}

#[tokio::test]
async fn what_the_policy_does_not_allow_the_cache_does_not_give() {
    let (rig, relay, mut cache) = rig(&denies(&["pypi.org"])).await;
    let mut program = relay.program().await;
    program.send(&get("/pypi.org/simple/", "")).await;
    let answer = program.head().await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("pypi.org:443: denied by"), "{answer}");
    rig.feed.attempt("pypi.org", Verdict::DeniedName).await;
    assert!(cache.is_untouched());
    let mut program = relay.program().await;
    program.send(&get("/npm.test/six", "")).await;
    assert!(cache.answer(ANSWER).await.starts_with("GET /npm.test/six "));
}

#[tokio::test]
async fn there_is_no_other_way_to_the_cache() {
    let (rig, relay, mut cache) = rig(&denies(&["evil.test"])).await;
    let port = cache.port();
    let host = "packages.rollbox.internal";
    for request in [
        format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n"),
        format!("CONNECT {host}.:443 HTTP/1.1\r\n\r\n"),
        format!("CONNECT 127.32.0.1:{port} HTTP/1.1\r\n\r\n"),
        format!("GET http://127.32.0.1:{port}/pypi.org/ HTTP/1.1\r\nHost: 127.32.0.1:{port}\r\n\r\n"),
        format!("GET http://{host}:{port}/pypi.org/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"),
        format!("POST http://{host}/pypi.org/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"),
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://{host}/evil.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://{host}/pypi.org/../evil.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://{host}/pypi.org/%2e%2E/evil.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://{host}/pypi.org/..%2fevil.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://{host}//evil.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://{host}/pypi.org/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"),
        format!("GET http://{host}/pypi.org/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody"),
        format!(
            "GET http://{host}/pypi.org/ HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
    ] {
        let mut program = relay.program().await;
        program.send(request.as_bytes()).await;
        let answer = program.head().await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{request}: {answer}");
    }
    assert!(cache.is_untouched());
    assert_eq!(rig.names.asked(), [""; 0]);
}

#[tokio::test]
async fn under_a_date_indexes_are_reached_through_the_cache_alone() {
    let (rig, relay, mut cache) = rig(&dated(&["pypi.org", "registry.npmjs.org", "a.test"])).await;
    for request in [
        "CONNECT pypi.org:443 HTTP/1.1\r\n\r\n",
        "CONNECT registry.npmjs.org:443 HTTP/1.1\r\n\r\n",
        "GET http://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
    ] {
        let mut program = relay.program().await;
        program.send(request.as_bytes()).await;
        let answer = program.head().await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(UNTIL), "{request}: {answer}");
    }
    assert_eq!(rig.feed.attempt("pypi.org", Verdict::DeniedName).await.rule, "until");
    let mut program = relay.program().await;
    program.send(&get("/pypi.org/simple/", "")).await;
    let got = cache.answer(ANSWER).await.to_lowercase();
    assert!(got.contains(&format!("x-rollbox-until: {}\r\n", UNTIL.to_lowercase())), "{got}");
    // What has no packages is reached as ever.
    let mut program = relay.program().await;
    program.send(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n").await;
    assert!(program.head().await.starts_with("HTTP/1.1 502"));
    assert!(rig.names.asked().contains(&"a.test".to_owned()));
}

#[tokio::test]
async fn another_date_cuts_what_is_open_under_the_first() {
    let (rig, relay, mut cache) = rig(&dated(&["pypi.org"])).await;
    let mut program = relay.program().await;
    program.send(&get("/pypi.org/simple/", "")).await;
    let mut peer = cache.accept().await;
    head(&mut peer).await;
    let later = Policy {
        until: "2025-01-01T00:00:00Z".to_owned(),
        digest: "later".to_owned(),
        ..dated(&["pypi.org"])
    };
    assert_eq!(rig.switch("sb-1", &later, 2).await, 1);
    assert_eq!(peer.read(&mut [0]).await.unwrap_or(0), 0);
    rig.feed.attempt("pypi.org", Verdict::Cut).await;
}

#[tokio::test]
async fn a_cache_that_is_not_there_is_the_platforms_fault() {
    let rig = Rig::with(&[("PACKAGES_URL", "http://127.32.0.1:1")]).await;
    let relay = rig.sandbox("sb-1", &allows(&["pypi.org"])).await;
    let mut program = relay.program().await;
    program.send(&get("/pypi.org/simple/", "")).await;
    assert!(program.head().await.starts_with("HTTP/1.1 503"));
    rig.feed.attempt("pypi.org", Verdict::PackagesSilent).await;
    let without = Rig::start().await;
    let relay = without.sandbox("sb-1", &allows(&["pypi.org"])).await;
    let mut program = relay.program().await;
    program.send(&get("/pypi.org/simple/", "")).await;
    let answer = program.head().await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("no part of this installation"),
        "{answer}"
    );
}

#[tokio::test]
async fn what_came_of_each_request_is_counted() {
    let (rig, relay, mut cache) = rig(&denies(&["evil.test"])).await;
    for (path, answer) in [
        ("/pypi.org/simple/six/", ANSWER.replace("\r\n\r\n", "\r\nX-Rollbox-Cache: HIT\r\n\r\n")),
        ("/own.test/six", ANSWER.replace("200 OK", "404 Not Found")),
    ] {
        let mut program = relay.program().await;
        program.send(&get(path, "")).await;
        cache.answer(&answer).await;
        program.head().await;
        assert_eq!(program.exactly(5).await, b"hello");
    }
    drop(cache);
    for path in ["/pypi.org/simple/six/", "/evil.test/six"] {
        let mut program = relay.program().await;
        program.send(&get(path, "")).await;
        program.head().await;
    }
    let metrics = rig.get("/metrics").await;
    let counted = |line: &&str| line.starts_with("rollbox_egress_packages_") && !line.ends_with(" 0");
    let timed = |line: &&str| line.contains("_bucket") || line.contains("_sum");
    let mut counted: Vec<&str> = metrics.lines().filter(counted).filter(|line| !timed(line)).collect();
    counted.sort_unstable();
    assert_eq!(
        counted,
        [
            "rollbox_egress_packages_bytes_total{result=\"hit\"} 5",
            "rollbox_egress_packages_bytes_total{result=\"refused\"} 5",
            "rollbox_egress_packages_requests_total{index=\"other\",result=\"refused\"} 1",
            "rollbox_egress_packages_requests_total{index=\"pypi.org\",result=\"hit\"} 1",
            "rollbox_egress_packages_requests_total{index=\"pypi.org\",result=\"silent\"} 1",
            "rollbox_egress_packages_seconds_count{result=\"hit\"} 1",
            "rollbox_egress_packages_seconds_count{result=\"refused\"} 1",
            "rollbox_egress_packages_seconds_count{result=\"silent\"} 1",
        ],
    );
}

#[tokio::test]
async fn a_cache_that_breaks_off_is_the_platforms_fault_and_no_switch_helps() {
    let (rig, relay, mut cache) = rig(&allows(&["pypi.org"])).await;
    let mut program = relay.program().await;
    program.send(&get("/pypi.org/simple/six/", "")).await;
    cache.answer("").await;
    let answer = program.head().await;
    assert!(answer.starts_with("HTTP/1.1 503 pypi.org:443: the package cache gave no answer"), "{answer}");
    assert!(answer.contains("try again") && !answer.contains("egress set"), "{answer}");
    rig.feed.attempt("pypi.org", Verdict::PackagesSilent).await;
}

#[tokio::test]
async fn a_policy_with_a_broken_date_allows_nothing() {
    for until in ["", "2024-06-01", "2024-06-01T00:00:00Z\r\nX: 1"] {
        let rig = Rig::start().await;
        let broken = Policy { until: until.to_owned(), ..dated(&["a.test"]) };
        let relay = rig.sandbox("sb-1", &broken).await;
        let mut program = relay.program().await;
        program.send(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n").await;
        assert!(program.head().await.starts_with("HTTP/1.1 403"), "{until}");
    }
}
