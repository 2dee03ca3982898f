use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Client, PREFACE_TIMEOUT, Peer, Server};
use crate::certificate::Certificate;
use crate::certificate::tests::{files, renew};
use crate::gateway::Gateway;
use crate::settings::tests::settings;

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: gateway.test\r\nconnection: close\r\n\r\n";

/// Connects as a client that trusts one certificate and offers some protocols.
async fn connect(
    address: std::net::SocketAddr,
    trusted: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect("gateway.test".try_into().unwrap(), stream).await
}

async fn serving(certificate: Arc<Certificate>) -> (Arc<Server>, std::net::SocketAddr) {
    let server = Server::new(&Arc::new(Gateway::new(settings()).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Arc::clone(&server).accept(listener, Some(certificate)));
    (server, address)
}

async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    stream.write_all(REQUEST).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    said
}

#[tokio::test]
async fn both_protocols_are_served_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let trusted = renew(&files);
    let (server, address) = serving(Arc::new(Certificate::read(files).unwrap())).await;
    let mut stream = connect(address, &trusted, &[b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let said = answer(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    let stream = connect(address, &trusted, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let driven = tokio::spawn(connection);
    let request = http::Request::get("https://gateway.test/healthz").body(()).unwrap();
    let (response, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    driven.abort();
    server.close(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_renewed_certificate_is_in_force_for_the_next_connection_and_a_broken_one_never() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let first = renew(&files);
    let certificate = Arc::new(Certificate::read(files.clone()).unwrap());
    let (_server, address) = serving(Arc::clone(&certificate)).await;
    let mut open = connect(address, &first, &[]).await.unwrap();
    let second = renew(&files);
    assert!(certificate.look().unwrap());
    assert!(!certificate.look().unwrap());
    assert!(connect(address, &first, &[]).await.is_err());
    assert!(answer(&mut connect(address, &second, &[]).await.unwrap()).await.starts_with("HTTP/1.1 200"));
    assert!(answer(&mut open).await.starts_with("HTTP/1.1 200"), "what was connected goes on");
    for (path, content) in [(&files.key, "no key"), (&files.certificate, "")] {
        std::fs::write(path, content).unwrap();
        assert!(certificate.look().is_err());
        assert!(connect(address, &second, &[]).await.is_ok());
    }
}

#[tokio::test]
async fn a_client_without_tls_is_hung_up_on_and_told_no_answer_of_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    renew(&files);
    let (_server, address) = serving(Arc::new(Certificate::read(files).unwrap())).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let mut said = Vec::new();
    drop(stream.read_to_end(&mut said).await);
    assert!(!said.starts_with(b"HTTP"), "an alert of TLS, and no answer: {said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_shakes_hands_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    renew(&files);
    let (_server, address) = serving(Arc::new(Certificate::read(files).unwrap())).await;
    let start = tokio::time::Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    assert!((PREFACE_TIMEOUT..PREFACE_TIMEOUT * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn what_comes_by_tls_says_so_whatever_the_client_says() {
    let peer = Peer(std::net::Ipv4Addr::LOCALHOST.into());
    let told = |secured: bool, said: &str| {
        let mut request = http::Request::get("/").header("x-forwarded-proto", said).body(()).unwrap();
        Client { peer, secured }.introduce(&mut request);
        request.headers().get_all("x-forwarded-proto").iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(told(true, "http"), ["https"]);
    // Without TLS it is what a proxy before the gateway says.
    assert_eq!(told(false, "https"), ["https"]);
    assert_eq!(told(false, "http"), ["http"]);
}
