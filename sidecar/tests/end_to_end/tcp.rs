//! The agent on TCP, where other processes can connect too: in a pod the user's code shares its network namespace.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::{Channel, Endpoint};
use wire::Code;
use wire::agent::HealthRequest;
use wire::agent::agent_client::AgentClient;

use crate::sandbox::{
    LIMIT, SANDBOX_ID, Sandbox, argv, free_address, problem, shell, signed, text, token, with_token,
};

const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const CROWD: usize = 2_000;

async fn listening(ip: &str) -> (Sandbox, String) {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, limit.1, limit.1).unwrap();
    let address = free_address(ip);
    let sandbox = Sandbox::start_with(&[("LISTEN", &format!("tcp:{address}"))]).await;
    (sandbox, address)
}

/// Reads to the end of a connection; an error counts as an end.
async fn end(stream: &mut TcpStream) {
    let mut chunk = [0; 256];
    while stream.read(&mut chunk).await.is_ok_and(|count| count > 0) {}
}

/// Opens connections that show no token.
async fn connect_many(address: &str, count: usize) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for n in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            // A connection that was displaced may be closed already.
            let _ = stream.write_all(PREFACE_AND_SETTINGS).await;
        }
        crowd.push(stream);
    }
    crowd
}

#[tokio::test]
async fn a_crowd_without_tokens_keeps_no_caller_with_a_token_out_and_takes_no_memory() {
    let (sandbox, address) = listening("127.0.0.1").await;
    assert_eq!(text(&sandbox.exec(argv(&["echo", "before"])).await.unwrap()), "before\n");
    let mut crowd = connect_many(&address, CROWD).await;
    let fresh = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut fresh = AgentClient::new(fresh.connect().await.unwrap());
    let answered = async {
        assert_eq!(text(&fresh.exec(signed(argv(&["echo", "new"]))).await.unwrap().into_inner()), "new\n");
        assert_eq!(text(&sandbox.exec(argv(&["echo", "after"])).await.unwrap()), "after\n");
    };
    // If those without a token were served first, each 64 of them would delay the call by their lifetime:
    // together over twice the timeout.
    assert!(tokio::time::timeout(LIMIT, answered).await.is_ok(), "those without a token are served first");
    let all_gone = async {
        for stream in &mut crowd {
            end(stream).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, all_gone).await.is_ok(), "those without a token are not closed");
    assert_eq!(text(&sandbox.exec(argv(&["echo", "still"])).await.unwrap()), "still\n");
    assert!(sandbox.peak_kib() < 48 << 10, "{} KiB", sandbox.peak_kib());
}

#[tokio::test]
async fn a_wrong_token_does_not_authenticate_a_connection() {
    let (_sandbox, address) = listening("127.0.0.1").await;
    for (sandbox_id, code, stays) in
        [(SANDBOX_ID, None, true), ("sb-other", Some(Code::PermissionDenied), false)]
    {
        let (mut client, connections) = counted(&address).await;
        let call = async |client: &mut AgentClient<Channel>| {
            client.health(with_token(HealthRequest {}, &token(sandbox_id, 600))).await.map(drop)
        };
        let refused = call(&mut client).await.err();
        assert_eq!(refused.map(|status| problem(&status).code), code);
        // Enough connections to displace every unauthenticated one that came before them.
        let _crowd = connect_many(&address, 100).await;
        let pushed_out = async {
            while connections.load(Ordering::Relaxed) == 1 {
                let _ = call(&mut client).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let within = if stays { Duration::from_millis(500) } else { LIMIT };
        assert_eq!(tokio::time::timeout(within, pushed_out).await.is_err(), stays, "{sandbox_id}");
    }
}

/// A client, and the number of its connections so far.
async fn counted(address: &str) -> (AgentClient<Channel>, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, address) = (Arc::clone(&connections), address.to_owned());
    let connector = tower::service_fn(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let address = address.clone();
        async move { TcpStream::connect(address).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://sidecar");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    (AgentClient::new(channel), connections)
}

#[tokio::test]
async fn peers_on_the_same_machine_are_refused_unless_it_listens_on_a_loopback_address() {
    let (sandbox, address) = listening("0.0.0.0").await;
    let port = address.rsplit_once(':').unwrap().1;
    let mut own = vec!["127.0.0.1".to_owned(), "127.0.0.7".to_owned()];
    // The address from which this machine would reach another one; no packet is sent.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("192.0.2.1:9").is_ok() {
        own.push(probe.local_addr().unwrap().ip().to_string());
    }
    for ip in own {
        for _ in 0..100 {
            let mut stream = TcpStream::connect(format!("{ip}:{port}")).await.unwrap();
            // A peer that is accepted gets the server's SETTINGS in return; a refused one may fail to write.
            let _ = stream.write_all(PREFACE_AND_SETTINGS).await;
            let said = tokio::time::timeout(LIMIT, stream.read(&mut [0; 256])).await.unwrap();
            assert_eq!(said.unwrap_or(0), 0, "{ip} was let in");
        }
    }
    assert!(sandbox.peak_kib() < 32 << 10, "{} KiB", sandbox.peak_kib());
}

#[tokio::test]
async fn nobody_else_can_listen_on_its_address() {
    let (_sandbox, address) = listening("0.0.0.0").await;
    let port = address.rsplit_once(':').unwrap().1;
    for ip in ["0.0.0.0", "127.0.0.1", "127.0.0.2"] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_reuseport(true).unwrap();
        let bound = socket.bind(format!("{ip}:{port}").parse().unwrap());
        let taken = bound.and_then(|()| socket.listen(1).map(drop));
        assert_eq!(taken.map_err(|err| err.kind()), Err(io::ErrorKind::AddrInUse), "{ip}");
    }
}

#[tokio::test]
async fn in_a_pod_it_ends_when_told_to_whatever_runs() {
    let (mut sandbox, _) = listening("127.0.0.1").await;
    let mut client = sandbox.client.clone();
    let running = tokio::spawn(async move { client.exec(signed(shell("sleep 100"))).await });
    sandbox.until("pgrep -cx sleep; true", "1\n").await;
    kill(Pid::from_raw(sandbox.sidecar.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(sandbox.ended().await.code(), Some(0));
    assert!(running.await.unwrap().is_err());
}
