//! Connections to ports. The sidecar dials in its own network namespace, which is the test's here.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use token::{Claims, Signer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::Code;
use wire::agent::{PortFrame, WaitPortRequest};

use crate::sandbox::{
    LIMIT, SANDBOX_ID, SEED, Sandbox, argv, free_address, problem, signed, text, with_token,
};

/// A send that blocks for this long counts as blocked for good; on a slow machine some room may be left.
const FULL: Duration = Duration::from_millis(200);

/// A call whose connection is open.
struct Connection {
    up: mpsc::Sender<PortFrame>,
    down: Streaming<PortFrame>,
}

impl Connection {
    async fn open(sandbox: &Sandbox, first: PortFrame) -> Result<Self, Status> {
        let (up, frames) = mpsc::channel(4);
        up.send(first).await.unwrap();
        let mut client = sandbox.client.clone();
        let mut down = client.connect(signed(ReceiverStream::new(frames))).await?.into_inner();
        let greeting = down.message().await?.unwrap();
        assert_eq!(greeting, PortFrame::default());
        Ok(Self { up, down })
    }

    async fn tcp(sandbox: &Sandbox, port: u16) -> Self {
        Self::open(sandbox, to(port)).await.unwrap()
    }

    async fn udp(sandbox: &Sandbox, port: u16, data: &'static [u8]) -> Self {
        Self::open(sandbox, PortFrame { datagrams: true, data: data.into(), ..to(port) }).await.unwrap()
    }

    async fn send(&self, data: impl Into<Bytes>) {
        self.up.send(PortFrame { data: data.into(), ..PortFrame::default() }).await.unwrap();
    }

    async fn end(&self) {
        self.up.send(PortFrame { eof: true, ..PortFrame::default() }).await.unwrap();
    }

    async fn next(&mut self) -> Option<PortFrame> {
        tokio::time::timeout(LIMIT, self.down.next()).await.unwrap().transpose().unwrap()
    }

    /// Everything until the server ends its direction.
    async fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(frame) = self.next().await {
            all.extend_from_slice(&frame.data);
            if frame.eof {
                break;
            }
        }
        all
    }

    async fn broken(&mut self) -> Code {
        loop {
            match tokio::time::timeout(LIMIT, self.down.next()).await.unwrap() {
                Some(Ok(_)) => {}
                Some(Err(status)) => return problem(&status).code,
                None => panic!("it ended without an error"),
            }
        }
    }
}

fn to(port: u16) -> PortFrame {
    PortFrame { port: port.into(), ..PortFrame::default() }
}

/// A port on which nothing listens, and that no other server can take meanwhile: it is bound.
fn silent() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

async fn server(address: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn accepted(listener: &TcpListener) -> TcpStream {
    tokio::time::timeout(LIMIT, listener.accept()).await.unwrap().unwrap().0
}

async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    all
}

#[tokio::test]
async fn bytes_pass_in_both_directions_and_each_ends_by_itself() {
    let sandbox = Sandbox::start().await;
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
        let (listener, port) = server(address).await;
        let mut connection = Connection::tcp(&sandbox, port).await;
        let mut peer = accepted(&listener).await;
        connection.send("question").await;
        connection.end().await;
        assert_eq!(read_to_end(&mut peer).await, b"question", "{address}");
        // The other direction is still open.
        peer.write_all(b"answer").await.unwrap();
        drop(peer);
        assert_eq!(connection.rest().await, b"answer", "{address}");
        assert_eq!(connection.next().await, None, "{address}");
    }
}

#[tokio::test]
async fn a_server_that_ends_its_side_first_still_reads() {
    let sandbox = Sandbox::start().await;
    let (listener, port) = server("127.0.0.1:0").await;
    let mut connection = Connection::tcp(&sandbox, port).await;
    let mut peer = accepted(&listener).await;
    peer.write_all(b"bye").await.unwrap();
    peer.shutdown().await.unwrap();
    assert_eq!(connection.rest().await, b"bye");
    connection.send("still ").await;
    connection.send("there").await;
    connection.end().await;
    assert_eq!(read_to_end(&mut peer).await, b"still there");
    assert_eq!(connection.next().await, None);
}

#[tokio::test]
async fn sixty_four_mebibytes_come_back_as_they_were_sent() {
    const COUNT: usize = 1024;
    let sandbox = Sandbox::start().await;
    let (listener, port) = server("127.0.0.1:0").await;
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = accepted(&listener).await.into_split();
        tokio::io::copy(&mut read, &mut write).await.unwrap()
    });
    let mut connection = Connection::tcp(&sandbox, port).await;
    let up = connection.up.clone();
    let sending = tokio::spawn(async move {
        for number in 0..COUNT {
            let data = vec![u8::try_from(number % 251).unwrap(); 64 << 10].into();
            up.send(PortFrame { data, ..PortFrame::default() }).await.unwrap();
        }
        up.send(PortFrame { eof: true, ..PortFrame::default() }).await.unwrap();
    });
    let all = connection.rest().await;
    assert_eq!(all.len(), COUNT * (64 << 10));
    assert!(
        all.chunks(64 << 10)
            .enumerate()
            .all(|(number, chunk)| { chunk.iter().all(|byte| *byte == u8::try_from(number % 251).unwrap()) })
    );
    sending.await.unwrap();
    assert_eq!(echo.await.unwrap(), all.len() as u64);
}

#[tokio::test]
async fn a_leg_takes_over_and_the_call_tells_the_end() {
    let sandbox = Sandbox::start().await;
    for breaks in [false, true] {
        let (listener, port) = server("127.0.0.1:0").await;
        let mut call =
            Connection::open(&sandbox, PortFrame { ticket: vec![7; 16], ..to(port) }).await.unwrap();
        let mut peer = accepted(&listener).await;
        let mut strange = leg(&sandbox, [8; 16]).await;
        assert_eq!(strange.read(&mut [0]).await.unwrap(), 0);
        let mut leg = leg(&sandbox, [7; 16]).await;
        let mut before = 0;
        loop {
            peer.write_all(b"x").await.unwrap();
            let frame = call.next().await.unwrap();
            before += frame.data.len();
            if frame.moved {
                break;
            }
        }
        peer.write_all(b"more").await.unwrap();
        call.send("still there").await;
        peer.read_exact(&mut [0; 11]).await.unwrap();
        if breaks {
            peer.set_zero_linger().unwrap();
        }
        drop(peer);
        let mut rest = String::new();
        tokio::time::timeout(LIMIT, leg.read_to_string(&mut rest)).await.unwrap().unwrap();
        if breaks {
            assert_eq!(call.broken().await, Code::PortUnreachable);
        } else {
            assert!(before > 0 && rest.ends_with("more") && rest.len() <= "xmore".len(), "{rest}");
            assert_eq!(call.next().await, Some(PortFrame { eof: true, ..PortFrame::default() }));
        }
    }
    let bad = Connection::open(&sandbox, PortFrame { ticket: vec![7; 15], ..to(1) }).await.err().unwrap();
    assert_eq!(problem(&bad).code, Code::InvalidArgument);
}

async fn leg(sandbox: &Sandbox, ticket: [u8; 16]) -> UnixStream {
    let mut leg = UnixStream::connect(sandbox.directory.path().join("agent.sock")).await.unwrap();
    leg.write_all(&[b"LEG ".as_slice(), &ticket].concat()).await.unwrap();
    leg
}

#[tokio::test]
async fn one_that_is_not_read_holds_up_nobody_else() {
    let sandbox = Sandbox::start().await;
    let (listener, port) = server("127.0.0.1:0").await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push((Connection::tcp(&sandbox, port).await, accepted(&listener).await));
    }
    // Sends until no more is accepted: the buffers of the sockets and of the stream are full.
    let mut filling = JoinSet::new();
    for up in silent.iter().map(|(connection, _)| connection.up.clone()) {
        let frame = || PortFrame { data: vec![0; 64 << 10].into(), ..PortFrame::default() };
        filling.spawn(async move {
            while let Ok(sent) = tokio::time::timeout(FULL, up.send(frame())).await {
                sent.unwrap();
            }
        });
    }
    filling.join_all().await;
    assert_eq!(text(&sandbox.exec(argv(&["echo", "on"])).await.unwrap()), "on\n");
}

#[tokio::test]
async fn a_port_that_does_not_answer_is_told_with_the_reason() {
    let sandbox = Sandbox::start().await;
    let (_taken, refused) = silent();
    let full = silent().0.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    // A short accept queue that is never emptied: the kernel answers until it is full, long before the last of these.
    let mut queue: Vec<_> = (0..16).map(|_| Box::pin(TcpStream::connect(address))).collect();
    for connecting in &mut queue {
        let _ = tokio::time::timeout(Duration::ZERO, connecting).await;
    }
    for (port, reason) in [(refused, "refused"), (address.port(), "timeout")] {
        let dialled = tokio::time::timeout(LIMIT, Connection::open(&sandbox, to(port)));
        let problem = problem(&dialled.await.unwrap().err().unwrap());
        assert_eq!((problem.code, problem.details["reason"].as_str()), (Code::PortUnreachable, reason));
        assert!(problem.detail.contains(&port.to_string()), "{}", problem.detail);
    }
}

#[tokio::test]
async fn what_is_no_port_and_the_sidecars_own_are_refused() {
    let address = free_address("127.0.0.1");
    let own: u32 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let sandbox = Sandbox::start_with(&[("LISTEN", &format!("tcp:{address}"))]).await;
    for (port, code) in
        [(0, Code::InvalidArgument), (65_536, Code::InvalidArgument), (own, Code::PermissionDenied)]
    {
        for datagrams in [false, true] {
            let first = PortFrame { port, datagrams, ..PortFrame::default() };
            let status = Connection::open(&sandbox, first).await.err().unwrap();
            assert_eq!(problem(&status).code, code, "{port}");
        }
        let request = WaitPortRequest { port, timeout_ms: 0 };
        let status = sandbox.client.clone().wait_port(signed(request)).await.unwrap_err();
        assert_eq!(problem(&status).code, code, "{port}");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_breaks_ends_with_the_reason() {
    let sandbox = Sandbox::start().await;
    let (listener, port) = server("127.0.0.1:0").await;
    let mut connection = Connection::tcp(&sandbox, port).await;
    let peer = accepted(&listener).await;
    peer.set_zero_linger().unwrap();
    drop(peer);
    assert_eq!(connection.broken().await, Code::PortUnreachable);
}

#[tokio::test]
async fn a_caller_that_goes_takes_the_connection_along() {
    let sandbox = Sandbox::start().await;
    let (listener, port) = server("127.0.0.1:0").await;
    let connection = Connection::tcp(&sandbox, port).await;
    let mut peer = accepted(&listener).await;
    drop(connection);
    let mut rest = Vec::new();
    assert!(tokio::time::timeout(LIMIT, peer.read_to_end(&mut rest)).await.is_ok());
}

#[tokio::test]
async fn datagrams_keep_their_bounds_on_either_address() {
    let sandbox = Sandbox::start().await;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = UdpSocket::bind(address).await.unwrap();
        let mut connection = Connection::udp(&sandbox, server.local_addr().unwrap().port(), b"first").await;
        let mut buffer = vec![0; 65_536];
        let receive = tokio::time::timeout(LIMIT, server.recv_from(&mut buffer)).await;
        let (count, peer) = receive.unwrap().unwrap();
        assert_eq!(&buffer[..count], b"first", "{address}");
        for size in [0, 1, 9_000, 60_000] {
            server.send_to(&vec![7; size], peer).await.unwrap();
            assert_eq!(connection.next().await.unwrap().data.len(), size, "{address}");
            connection.send(vec![8; size]).await;
            let received = tokio::time::timeout(LIMIT, server.recv(&mut buffer)).await;
            assert_eq!(received.unwrap().unwrap(), size, "{address}");
        }
        connection.end().await;
        assert_eq!(connection.next().await, None);
    }
}

#[tokio::test]
async fn datagrams_to_nobody_and_larger_than_any_are_told() {
    let sandbox = Sandbox::start().await;
    // Bound, so that no other socket gets the port, by a socket that receives only from itself.
    let taken = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let nobody = taken.local_addr().unwrap();
    taken.connect(nobody).await.unwrap();
    let mut connection = Connection::udp(&sandbox, nobody.port(), b"hello").await;
    assert_eq!(connection.broken().await, Code::PortUnreachable);
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut connection = Connection::udp(&sandbox, server.local_addr().unwrap().port(), b"").await;
    connection.send(vec![0; 65_508]).await;
    assert_eq!(connection.broken().await, Code::InvalidArgument);
}

#[tokio::test]
async fn a_wait_ends_when_something_listens_or_the_time_is_over() {
    let sandbox = Sandbox::start().await;
    let wait = async |port: u16, timeout_ms: u64| {
        let request = WaitPortRequest { port: port.into(), timeout_ms };
        sandbox.client.clone().wait_port(signed(request)).await.map(|state| state.into_inner().listening)
    };
    let (silent, port) = silent();
    assert!(!wait(port, 0).await.unwrap());
    assert!(!wait(port, 50).await.unwrap());
    let mut waiting = pin!(wait(port, 600_000));
    // It must not end yet, however slow the machine is.
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
    let _listener = silent.listen(1).unwrap();
    assert!(tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap());
    assert_eq!(problem(&wait(port, 600_001).await.unwrap_err()).code, Code::InvalidArgument);
}

#[tokio::test]
async fn a_token_for_a_port_opens_that_one_and_nothing_else() {
    let sandbox = Sandbox::start().await;
    let (_listener, port) = server("127.0.0.1:0").await;
    let token = Signer::from_seed(SEED).sign(&Claims {
        sandbox_id: SANDBOX_ID.into(),
        owner: "tester".into(),
        scopes: vec![format!("port:{port}")].into(),
        expires_at_s: 4_102_444_800,
        settings: None,
    });
    let mut client = sandbox.client.clone();
    let mut ask = async |port: u16| {
        let request = WaitPortRequest { port: port.into(), timeout_ms: 0 };
        client.wait_port(with_token(request, &token)).await
    };
    assert!(ask(port).await.unwrap().into_inner().listening);
    assert_eq!(problem(&ask(port ^ 1).await.unwrap_err()).code, Code::PermissionDenied);
    let refused = sandbox.client.clone().exec(with_token(argv(&["true"]), &token)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::PermissionDenied);
}
