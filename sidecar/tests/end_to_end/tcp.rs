//! The agent on TCP, where others can reach it too: in a pod the user's code shares its network.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use wire::Code;
use wire::agent::HealthRequest;

use crate::sandbox::{
    PATIENCE, Sandbox, argv, free_address, problem, shell, signed, text, token, with_token,
};

const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const CROWD: usize = 2_000;
/// Longer than a stranger may live, with the time for its farewell.
const LIFETIME: Duration = Duration::from_secs(20);

async fn listening(ip: &str) -> (Sandbox, String) {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, limit.1, limit.1).unwrap();
    let address = free_address(ip);
    let sandbox = Sandbox::start_with(&[("LISTEN", &format!("tcp:{address}"))]).await;
    (sandbox, address)
}

/// Reads to the end of a connection; an error is an end, too.
async fn end(stream: &mut TcpStream) {
    let mut chunk = [0; 256];
    while stream.read(&mut chunk).await.is_ok_and(|count| count > 0) {}
}

fn resident_kib(sandbox: &Sandbox) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", sandbox.sidecar.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Connections that show no token.
async fn strangers(address: &str) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for n in 0..CROWD {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            // Those that were pushed out may be closed already.
            let _ = stream.write_all(PREFACE_AND_SETTINGS).await;
        }
        crowd.push(stream);
    }
    crowd
}

#[tokio::test]
async fn a_crowd_of_strangers_keeps_no_caller_with_a_token_out_and_takes_no_memory() {
    let (sandbox, address) = listening("127.0.0.1").await;
    assert_eq!(text(&sandbox.exec(argv(&["echo", "before"])).await.unwrap()), "before\n");
    let (mut crowd, mut times) = (Vec::new(), Vec::new());
    // More than once, for a machine that stands still at times: less than a stranger's life must be enough.
    while times.iter().all(|time| *time > Duration::from_secs(4)) {
        assert!(times.len() < 3, "{times:?}");
        crowd = strangers(&address).await;
        let began = Instant::now();
        let fresh = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut fresh = wire::agent::agent_client::AgentClient::new(fresh.connect().await.unwrap());
        assert_eq!(text(&fresh.exec(signed(argv(&["echo", "new"]))).await.unwrap().into_inner()), "new\n");
        assert_eq!(text(&sandbox.exec(argv(&["echo", "after"])).await.unwrap()), "after\n");
        times.push(began.elapsed());
    }
    let all_gone = async {
        for stream in &mut crowd {
            end(stream).await;
        }
    };
    assert!(tokio::time::timeout(LIFETIME, all_gone).await.is_ok(), "strangers live on");
    assert_eq!(text(&sandbox.exec(argv(&["echo", "still"])).await.unwrap()), "still\n");
    assert!(resident_kib(&sandbox) < 48 << 10, "{} KiB", resident_kib(&sandbox));
}

#[tokio::test]
async fn a_wrong_token_keeps_a_stranger_a_stranger() {
    let (sandbox, _) = listening("127.0.0.1").await;
    let mut client = sandbox.client.clone();
    let began = Instant::now();
    let mut refused = 0;
    // The channel connects again by itself, so the refusals of its connections are what tells.
    while began.elapsed() < Duration::from_secs(6) || refused <= 50 {
        assert!(began.elapsed() < PATIENCE, "{refused}");
        let request = with_token(HealthRequest {}, &token("sb-other", 600));
        let status = client.health(request).await.unwrap_err();
        if !status.details().is_empty() {
            assert_eq!(problem(&status).code, Code::PermissionDenied);
            refused += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(client.health(signed(HealthRequest {})).await.unwrap().into_inner().acknowledged);
}

#[tokio::test]
async fn peers_on_the_same_machine_are_refused_unless_it_listens_on_a_loopback_address() {
    let (sandbox, address) = listening("0.0.0.0").await;
    let port = address.rsplit_once(':').unwrap().1;
    let mut own = vec!["127.0.0.1".to_owned(), "127.0.0.7".to_owned()];
    // The address by which this machine would reach another one; nothing is sent.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("192.0.2.1:9").is_ok() {
        own.push(probe.local_addr().unwrap().ip().to_string());
    }
    for ip in own {
        for _ in 0..100 {
            let mut stream = TcpStream::connect(format!("{ip}:{port}")).await.unwrap();
            let closed = tokio::time::timeout(Duration::from_secs(4), end(&mut stream)).await;
            assert!(closed.is_ok(), "{ip} was let in");
        }
    }
    assert!(resident_kib(&sandbox) < 32 << 10);
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
async fn in_a_pod_it_ends_at_once_when_told_to() {
    let (mut sandbox, _) = listening("127.0.0.1").await;
    let mut client = sandbox.client.clone();
    let running = tokio::spawn(async move { client.exec(signed(shell("sleep 100"))).await });
    sandbox.until("pgrep -cx sleep; true", "1\n").await;
    let began = Instant::now();
    kill(Pid::from_raw(sandbox.sidecar.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(sandbox.sidecar.0.wait().unwrap().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(running.await.unwrap().is_err());
}
