//! What is told where there is no link, and who may open one.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Code;
use wire::agent::{HealthRequest, WaitPortRequest};

use super::link::{Link, fresh_ticket, relays};
use super::{Installed, read_to_end};
use crate::sandbox::{
    SANDBOX_ID, Sandbox, grows_to, problem, scoped, shell, signed, text, token, with_token,
};

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

async fn asked(egress: &Installed, request: &[u8]) -> Vec<u8> {
    let mut program = egress.program().await;
    program.write_all(request).await.unwrap();
    read_to_end(&mut program).await
}

#[tokio::test]
async fn without_a_link_programs_are_refused_at_once_and_with_a_sentence() {
    let egress = Installed::start().await;
    assert!(relays(egress.sandbox.sidecar.0.id()).is_empty());
    for request in
        ["CONNECT example.org:443 HTTP/1.1\r\n\r\n", "GET http://example.org/ HTTP/1.1\r\n\r\n", "\x16\x03"]
    {
        let answer = String::from_utf8(asked(&egress, request.as_bytes()).await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["code"], &body["details"]["policy"]), (&"egress_denied".into(), &"offline".into()));
    }
    // By name, without a password alone, and no `CONNECT`.
    let socks = [&[5, 1, 0, 5, 1, 0, 3, 11][..], b"example.org", &[1, 187]].concat();
    assert_eq!(asked(&egress, &socks).await, [&[5, 0][..], &[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]].concat());
    assert_eq!(asked(&egress, &[5, 1, 2]).await, [5, 0xff]);
    assert_eq!(asked(&egress, &[5, 1, 0, 5, 2, 0, 1]).await[2..4], [5, 7]);
    // A request that is longer than what the relay reads does not lose the answer.
    assert!(asked(&egress, &[b'G'; 60_000]).await.starts_with(b"HTTP/1.1 403 "));
    grows_to(7, async || egress.refused().await).await;
    let result = egress.sandbox.exec(shell("echo works")).await.unwrap();
    assert_eq!(text(&result), "works\n");
}

#[tokio::test]
async fn hosts_that_were_refused_are_on_record_as_they_were_asked_for() {
    let egress = Installed::start().await;
    assert_eq!(egress.refusals().await, []);
    let before_ms = unix_ms();
    for _ in 0..2 {
        asked(&egress, b"CONNECT github.com:443 HTTP/1.1\r\n\r\n").await;
    }
    asked(&egress, b"GET http://pypi.org/simple/ HTTP/1.1\r\n\r\n").await;
    asked(&egress, &[&[5, 1, 0, 5, 1, 0, 3, 5][..], b"a\n.b\xff", &[0, 22]].concat()).await;
    for nothing in [&b"\x16\x03"[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[5, 1, 2]] {
        asked(&egress, nothing).await;
    }
    grows_to(7, async || egress.refused().await).await;
    let told = egress.refusals().await;
    let count = |host: &str| -> u32 { told.iter().filter(|one| one.host == host).map(|one| one.count).sum() };
    assert_eq!((count("github.com"), count("pypi.org"), count("a?.b?")), (2, 1, 1), "{told:?}");
    for one in &told {
        let (protocol, port) = match one.host.as_str() {
            "github.com" => ("connect", 443),
            "pypi.org" => ("http", 80),
            "a?.b?" => ("socks5", 22),
            other => panic!("{other}"),
        };
        assert_eq!((one.protocol.as_str(), one.port, one.lost), (protocol, port, false));
        assert!((before_ms..=unix_ms()).contains(&one.at_ms), "{one:?}");
    }
    // They are still there when the relay has ended, and so they are with a link.
    let relay = egress.relay(0).await;
    kill(Pid::from_raw(relay), Signal::SIGKILL).unwrap();
    let link = egress.link().await;
    egress.relay(relay).await;
    assert_eq!(egress.refusals().await, told);
    drop(link);
}

#[tokio::test]
async fn of_a_flood_of_refused_hosts_the_newest_are_kept() {
    let egress = Installed::start().await;
    for round in 0..20 {
        for n in 0..30 {
            asked(&egress, format!("CONNECT h{round}-{n}.test:443 HTTP/1.1\r\n\r\n").as_bytes()).await;
        }
    }
    grows_to(600, async || egress.refused().await).await;
    asked(&egress, b"CONNECT last.test:443 HTTP/1.1\r\n\r\n").await;
    grows_to(601, async || egress.refused().await).await;
    let told = egress.refusals().await;
    assert!((33..=256).contains(&told.len()), "{}", told.len());
    assert!(told.is_sorted_by_key(|one| one.at_ms));
    assert_eq!(told.last().unwrap().host, "last.test");
}

#[tokio::test]
async fn only_the_token_of_egress_opens_a_link_and_a_ticket_opens_one_once() {
    let egress = Installed::start().await;
    let ticket = fresh_ticket();
    for (token, expected) in [
        (token(SANDBOX_ID, 600), Code::PermissionDenied),
        (scoped(&format!("port:{}", egress.port)), Code::PermissionDenied),
        (scoped("ready"), Code::PermissionDenied),
        (token(SANDBOX_ID, -1), Code::Unauthenticated),
    ] {
        assert_eq!(egress.open(&ticket, &token).await.unwrap_err().code, expected);
        let mut leg = egress.leg(&ticket).await;
        assert_eq!(leg.read(&mut [0]).await.unwrap(), 0);
    }
    let ours = scoped("egress");
    assert_eq!(egress.open(&[], &ours).await.unwrap_err().code, Code::InvalidArgument);
    let other = egress.sandbox.client.clone().health(with_token(HealthRequest {}, &ours)).await;
    assert_eq!(problem(&other.unwrap_err()).code, Code::PermissionDenied);
    egress.open(&ticket, &ours).await.unwrap();
    let mut link = Link::over(egress.leg(&ticket).await).await;
    // Whoever has seen the ticket comes too late.
    let mut replayed = egress.leg(&ticket).await;
    assert_eq!(replayed.read(&mut [0]).await.unwrap(), 0);
    let mut program = egress.program().await;
    program.write_all(b"x").await.unwrap();
    assert_eq!(link.accept().await.take(1).await, b"x");
}

#[tokio::test]
async fn where_egress_is_not_installed_there_is_no_link_and_no_variable() {
    let sandbox = Sandbox::start().await;
    let egress = Installed { sandbox, port: 0 };
    assert_eq!(egress.open(&fresh_ticket(), &scoped("egress")).await.unwrap_err().code, Code::Unsupported);
    assert_eq!(egress.sandbox.sh("env | grep -ci _proxy; true").await, "0\n");
}

#[tokio::test]
async fn commands_find_the_proxy_by_variables_that_the_caller_may_override() {
    let egress = Installed::start().await;
    let java = format!(
        "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={0} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={0}\n",
        egress.port
    );
    assert_eq!(egress.sandbox.sh("echo $NODE_USE_ENV_PROXY $MAVEN_OPTS").await, format!("1 {java}"));
    let seen = egress.sandbox.sh("env | grep -iE '^(all|https?|no)_proxy=' | sort").await;
    let proxy = format!("http://127.0.0.1:{}", egress.port);
    let without = egress.sandbox.sh("echo $NO_PROXY").await;
    assert!(without.starts_with("localhost,.localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,::,"), "{without}");
    let name = egress.sandbox.sh("uname -n").await;
    assert!(without.trim().split(',').any(|entry| entry == name.trim().to_lowercase()), "{without}");
    let expected: Vec<String> = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"]
        .into_iter()
        .flat_map(|name| [name.to_owned(), name.to_lowercase()])
        .map(|name| match name.to_uppercase().as_str() {
            "NO_PROXY" => format!("{name}={}", without.trim()),
            _ => format!("{name}={proxy}"),
        })
        .collect();
    let mut seen: Vec<&str> = seen.lines().collect();
    seen.sort_unstable();
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    let mut own = shell("echo $https_proxy $HTTPS_PROXY");
    own.env = crate::sandbox::env(&[("https_proxy", "http://own:1")]);
    assert_eq!(text(&egress.sandbox.exec(own).await.unwrap()), format!("http://own:1 {proxy}\n"));
}

#[tokio::test]
async fn the_proxys_port_is_none_of_the_sandboxs() {
    let egress = Installed::start().await;
    let request = WaitPortRequest { port: egress.port.into(), timeout_ms: 0 };
    let refused = egress.sandbox.client.clone().wait_port(signed(request)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::PermissionDenied);
}
