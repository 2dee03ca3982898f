//! Programs that ask the proxy for a server of their own sandbox: the answer is the server's.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Installed, read_to_end};
use crate::sandbox::{LIMIT, Sandbox};

/// Answers with what it was asked, and closes; on the port that it prints.
const SERVER: &str = r"
import http.server, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get('content-length', 0)))
        text = ' '.join((self.command, self.path, body.decode(), str(self.headers.get('connection')))).encode()
        self.send_response(200); self.send_header('content-length', str(len(text))); self.end_headers()
        self.wfile.write(text)
    do_GET = do_POST
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
server = Server(('::', 8000), Handler)
open('/tmp/up', 'w').close()
server.serve_forever()
";

async fn serving() -> Sandbox {
    let sandbox = Sandbox::start_in_one_network(&[("EGRESS_PORT", "3128"), ("EGRESS_DNS", "1")]).await;
    sandbox.sh(&format!("rm -f /tmp/up; cat > /tmp/server.py <<'END'\n{SERVER}\nEND\n")).await;
    sandbox.sh("setsid python3 /tmp/server.py >/dev/null 2>&1 & for _ in $(seq 500); do [ -e /tmp/up ] && break; sleep 0.02; done").await;
    sandbox
}

#[tokio::test]
async fn a_program_reaches_its_own_server_by_the_proxy_in_every_notation() {
    let sandbox = serving().await;
    for host in
        "localhost LocalHost. a.localhost 127.0.0.1 127.1 127.8.9.10 0.0.0.0 [::1] [::] [::ffff:127.0.0.1] $HOSTNAME $HOSTNAME.some.domain"
            .split(' ')
    {
        let asked = format!("curl -sS --noproxy '' -x $http_proxy -d body http://{host}:8000/path?query");
        assert_eq!(sandbox.sh(&asked).await, "POST /path?query body close", "{host}");
        let tunnelled = format!("curl -sS -p --noproxy '' -x $http_proxy http://{host}:8000/");
        assert_eq!(sandbox.sh(&tunnelled).await, "GET /  None", "{host}");
    }
    // curl writes an address in one notation, whatever it was given.
    let raw = "for host in 0 2130706433 0x7f.1 0177.0.0.1; do
        exec 3<>/dev/tcp/127.0.0.1/3128
        printf 'GET http://%s:8000/raw HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' $host >&3
        tail -n 1 <&3; echo
    done";
    assert_eq!(sandbox.sh(raw).await, "GET /raw  close\n".repeat(4));
}

#[tokio::test]
async fn a_program_reaches_its_own_server_by_socks_too() {
    let sandbox = serving().await;
    let named = "LocalHost. a.localhost 127.0.0.1 127.1 127.8.9.10 0.0.0.0 $HOSTNAME $HOSTNAME.some.domain";
    // Version 4 has no addresses of IPv6.
    for (by, hosts) in [("socks5h", named), ("socks4a", named), ("socks5h", "[::1] [::] [::ffff:127.0.0.1]")]
    {
        for host in hosts.split(' ') {
            let asked =
                format!("curl -sS --noproxy '' -x {by}://127.0.0.1:3128 -d body http://{host}:8000/path");
            assert_eq!(sandbox.sh(&asked).await, "POST /path body None", "{by} {host}");
        }
    }
}

#[tokio::test]
async fn where_nothing_listens_in_the_sandbox_the_answer_says_so_and_other_hosts_stay_refused() {
    let sandbox = serving().await;
    let asked = |url: &str| format!("curl -s --noproxy '' -x $http_proxy -w ' %{{http_code}}' {url}");
    let closed = sandbox.sh(&asked("http://0.0.0.0:8001/")).await;
    assert!(closed.ends_with(" 502") && closed.contains("\"code\":\"port_unreachable\""), "{closed}");
    assert!(closed.contains("nothing in this sandbox listens at 0.0.0.0:8001"), "{closed}");
    let socks = "curl -sS --noproxy '' -x socks5h://127.0.0.1:3128 http://0.0.0.0:8001/ 2>&1; true";
    let refused = sandbox.sh(socks).await;
    assert!(refused.contains("(5)"), "{refused}");
    for host in ["example.org", "localhost.example.org", "10.1.2.3"] {
        let refused = sandbox.sh(&asked(&format!("http://{host}:8000/"))).await;
        assert!(refused.ends_with(" 403") && refused.contains("egress_denied"), "{refused}");
    }
    // The next request of a connection that was for the sandbox is for whatever it says.
    let two = sandbox.sh(&format!("{} http://example.org:8000/", asked("http://0.0.0.0:8000/"))).await;
    assert!(two.starts_with("GET /  close 200") && two.ends_with(" 403"), "{two}");
}

#[tokio::test]
async fn by_the_variables_alone_a_program_meets_a_refused_connection_as_without_a_proxy() {
    let sandbox = serving().await;
    let ask = "import urllib.request, urllib.error, sys
for host in sys.argv[1:]:
    try:
        urllib.request.urlopen(f'http://{host}:8001/')
    except urllib.error.URLError as error:
        print(type(error.reason).__name__)
";
    let hosts = "localhost 127.0.0.1 0.0.0.0";
    let script = format!("python3 -c \"{}\" {hosts} | sort | uniq -c", ask.replace('"', "\\\""));
    assert_eq!(sandbox.sh(&script).await.trim(), "3 ConnectionRefusedError");
}

#[tokio::test]
async fn a_second_request_is_not_taken_to_a_server_that_does_not_close() {
    let egress = Installed::start().await;
    let server = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await.unwrap();
    let at = server.local_addr().unwrap();
    let mut program = egress.program().await;
    let asked = format!("POST http://{at}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo");
    program.write_all(asked.as_bytes()).await.unwrap();
    let (mut connection, _) = server.accept().await.unwrap();
    program.write_all(b"dy").await.unwrap();
    let mut head = vec![0; "POST / HTTP/1.1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody".len()];
    connection.read_exact(&mut head).await.unwrap();
    assert!(head.ends_with(b"\r\nConnection: close\r\n\r\nbody"));
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let mut first = vec![0; 38];
    program.read_exact(&mut first).await.unwrap();
    program.write_all(b"GET http://example.org/ HTTP/1.1\r\n\r\n").await.unwrap();
    // The connection ends, as one that was idle for too long; nothing of the request came to the server.
    let mut left = Vec::new();
    let _ = tokio::time::timeout(LIMIT, program.read_to_end(&mut left)).await.unwrap();
    assert!(left.is_empty());
    let _ = tokio::time::timeout(LIMIT, connection.read_to_end(&mut left)).await.unwrap();
    assert!(left.is_empty());
}

#[tokio::test]
async fn a_tunnel_within_the_sandbox_keeps_the_end_of_each_side() {
    let egress = Installed::start().await;
    let server = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await.unwrap();
    let mut program = egress.program().await;
    let asked = format!("CONNECT {} HTTP/1.1\r\n\r\nearly", server.local_addr().unwrap());
    // In pieces, as slow programs send it.
    let (begin, rest) = asked.split_at(10);
    program.write_all(begin.as_bytes()).await.unwrap();
    tokio::task::yield_now().await;
    program.write_all(rest.as_bytes()).await.unwrap();
    program.shutdown().await.unwrap();
    let (mut connection, _) = server.accept().await.unwrap();
    assert_eq!(read_to_end(&mut connection).await, b"early");
    connection.write_all(b"answer").await.unwrap();
    drop(connection);
    assert_eq!(read_to_end(&mut program).await, b"HTTP/1.1 200 OK\r\n\r\nanswer");
    // Nothing of it is counted as refused.
    assert_eq!(egress.refused().await, 0);
}

#[tokio::test]
async fn a_client_of_socks_for_another_host_is_greeted_once() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let mut program = egress.program().await;
    let greeting = [5, 2, 0, 2];
    let request = [&[5, 1, 0, 3, 11][..], b"example.org", &[1, 187]].concat();
    program.write_all(&greeting).await.unwrap();
    let mut greeted = [0; 2];
    program.read_exact(&mut greeted).await.unwrap();
    assert_eq!(greeted, [5, 0]);
    program.write_all(&request).await.unwrap();
    let mut stream = link.accept().await;
    assert_eq!(stream.next().await.unwrap().unwrap(), [&greeting[..], &request].concat());
    // Egress answers both, in pieces as they come.
    let accepted = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for piece in [&[5][..], &[0], &accepted, b"data"] {
        stream.down.send_data(Bytes::copy_from_slice(piece), false).unwrap();
    }
    stream.down.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read_to_end(&mut program).await, [&accepted[..], b"data"].concat());
}
