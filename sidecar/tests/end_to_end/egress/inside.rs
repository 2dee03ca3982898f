//! What user code sees, from a sandbox whose loopback is the relay's, as on every backend.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use sidecar::relay::sockets::Sockets;
use sidecar::settings::Egress;

use super::link::relays;
use crate::sandbox::{Sandbox, grows_to};

const PORT: &str = "3128";

async fn sandbox() -> Sandbox {
    Sandbox::start_in_one_network(&[("EGRESS_PORT", PORT), ("EGRESS_DNS", "1")]).await
}

#[tokio::test]
async fn a_name_is_told_to_be_unknown_at_once_over_udp_and_tcp() {
    let sandbox = sandbox().await;
    let query = r"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
    let answered =
        "1234818300010000000000000765786d706c65036f72670000010001".replace("65786d706c65", "6578616d706c65");
    let ask = |family: &str, query: &str, count: usize| {
        format!(
            "exec 3<>/dev/{family}/127.0.0.1/53; printf '{query}' >&3; head -c {count} <&3 | od -An -tx1 | tr -d ' \\n'"
        )
    };
    assert_eq!(sandbox.sh(&ask("udp", query, 29)).await, answered);
    let framed = format!(r"\x00\x1d{query}");
    assert_eq!(sandbox.sh(&ask("tcp", &framed, 31)).await, format!("001d{answered}"));
}

#[tokio::test]
async fn the_relay_is_neither_seen_nor_signalled_and_its_ports_are_not_taken_over() {
    let sandbox = sandbox().await;
    // `curl` finds the proxy by its variables.
    assert_eq!(
        sandbox.sh("curl -s -o /dev/null -w '%{http_connect}' https://example.org; true").await,
        "403"
    );
    assert_eq!(
        sandbox.sh("curl -s http://example.org | grep -o '\"code\":\"[a-z_]*\"'").await,
        "\"code\":\"egress_denied\"\n"
    );
    assert_eq!(relays(sandbox.sidecar.0.id()).len(), 1);
    let names = "for p in /proc/[0-9]*; do read -r name < $p/comm && echo $name; done";
    assert_eq!(sandbox.sh(names).await, "rollbox-spawner\nbash\n");
    sandbox.sh("kill -9 -1; true").await;
    sandbox.sh("pkill -9 rollbox-relay; true").await;
    assert_eq!(relays(sandbox.sidecar.0.id()).len(), 1);
    let bind = "import socket as s
taken = 0
for family, host in (s.AF_INET, '127.0.0.1'), (s.AF_INET, '0.0.0.0'), (s.AF_INET6, '::1'), (s.AF_INET6, '::'):
    for option in s.SO_REUSEADDR, s.SO_REUSEPORT:
        for port in 3128, 53:
            with s.socket(family) as mine:
                mine.setsockopt(s.SOL_SOCKET, option, 1)
                try:
                    mine.bind((host, port)); mine.listen(); taken += not (port == 53 and family == s.AF_INET6)
                except OSError:
                    pass
print(taken)";
    assert_eq!(sandbox.sh(&format!("python3 -c \"{bind}\"")).await, "0\n");
    grows_to(1, async || relays(sandbox.sidecar.0.id()).len() as u64).await;
}

#[test]
fn a_port_is_held_also_where_the_loopback_comes_up_later() {
    let tried = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        // A new network's loopback is down, and has no address of IPv6.
        let sockets = Sockets::bind(Egress { port: 3128, dns: true }).unwrap();
        assert_eq!(sockets.proxies.len(), 2);
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        for host in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            assert_eq!(TcpListener::bind((host, 3128)).unwrap_err().kind(), ErrorKind::AddrInUse, "{host}");
        }
    });
    tried.join().unwrap();
}
