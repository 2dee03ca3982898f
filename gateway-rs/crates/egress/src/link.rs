//! The link to one sandbox: opened, served, and opened again for as long as the sandbox is served.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use http::{Method, Request, Response, StatusCode, Uri};
use program::grpc;
use program::transport::{Dialer, Stream};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tonic::metadata::MetadataValue;
use wire::agent::OpenEgressRequest;
use wire::agent::agent_client::AgentClient;

use crate::front;
use crate::live::Live;
use crate::outside::Outside;
use crate::paced::{Paced, paced};
use crate::sandbox::{Place, Sandbox};
use crate::stream::Carried;

/// First bytes of the connection that becomes the link, before its ticket (agent.proto).
const MARK: [u8; 4] = *b"LEG ";

/// Timeout for the opening of a link, from the first connection to the relay's first bytes.
const OPEN_DEADLINE: Duration = Duration::from_secs(5);

/// The leg is brought when the sidecar has answered that it expects it; after this long also without an answer.
const ANSWER_WAIT: Duration = Duration::from_millis(50);

/// Pauses between attempts: doubled up to the longest. A link that lived for longer than that was not refused.
const BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Connections of one sandbox at one time; as many as its relay takes.
const MAX_STREAMS: u32 = 256;

/// What one connection, and all of a sandbox, may have sent that no server took yet: memory of this process that a
/// hostile sandbox can fill.
pub(crate) const STREAM_BYTES: u32 = 64 << 10;
const LINK_BYTES: u32 = 4 << 20;

/// The library's bound of small frames that wait in it, each counted with 256 bytes less its own: those of five turns
/// of [`Paced`]. A link where more wait is ended, so it bounds memory too.
pub(crate) const FRAME_BUDGET: usize = 8 << 20;

/// What of one connection may wait to be sent to its sandbox.
const SEND_BYTES: usize = 256 << 10;

/// A sandbox's whole requests are `CONNECT` and two short headers.
const HEADER_BYTES: u32 = 4 << 10;

/// What links need, the same for all of a replica.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) dialer: Dialer,
    pub(crate) outside: Arc<Outside>,
    /// Links are opened only while the feed is live: a replica that is cut off, or has stood still, would else take back
    /// the sandboxes that another one serves meanwhile.
    pub(crate) live: Live,
    /// Once true, links take no new connections, and end with their last.
    pub(crate) draining: watch::Receiver<bool>,
    /// How long connections may continue of a sandbox that another replica serves now.
    pub(crate) handover: Duration,
    /// How long after a move connections may be open at the replica that served the sandbox before.
    pub(crate) settling: Duration,
    /// Connections of programs under way.
    pub(crate) connections: TaskTracker,
}

/// Why a link ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The other side, or the network.
    Lost(String),
    /// The sidecar is somewhere else.
    Moved,
    /// This replica drains, or serves the sandbox no more.
    Over,
}

/// Keeps the link of a sandbox until that is closed, or the replica drains.
pub(crate) async fn keep(sandbox: Arc<Sandbox>, opening: Arc<Opening>) {
    let lost = tokio::select! {
        never = keep_open(&sandbox, &opening) => match never {},
        () = left(&opening, &sandbox) => "this replica does not serve the sandbox any more",
        () = sandbox.closed() => "this replica does not serve the sandbox any more",
        () = drained(&opening, &sandbox) => "this replica shuts down",
    };
    sandbox.tell_linked(false, lost);
}

/// Completes once the replica drains and the link, which `keep_open` serves meanwhile, has no connection any more.
async fn drained(opening: &Opening, sandbox: &Sandbox) {
    let mut draining = opening.draining.clone();
    // An error: the process ends.
    let _ = draining.wait_for(|draining| *draining).await;
    sandbox.link_over().await;
}

/// Completes once the sandbox is another replica's, and its connections here have ended, or have had their time.
async fn left(opening: &Opening, sandbox: &Sandbox) {
    sandbox.left().await;
    if tokio::time::timeout(opening.handover, sandbox.link_over()).await.is_err() {
        sandbox.close();
    }
}

async fn keep_open(sandbox: &Arc<Sandbox>, opening: &Arc<Opening>) -> Infallible {
    let (mut live, mut place) = (opening.live.clone(), sandbox.place());
    let mut backoff = BACKOFF;
    loop {
        live.live().await;
        let (began, now) = (Instant::now(), place.borrow_and_update().clone());
        let opened = tokio::select! {
            // A link that is opened now would take the sandbox back from the replica that serves it.
            biased;
            () = sandbox.left() => {
                sandbox.end_link();
                std::future::pending().await
            }
            opened = open(opening, &now) => opened,
        };
        sandbox.common().metrics.link_open(opened.is_ok());
        let ended = match opened {
            Ok(link) => {
                sandbox.tell_linked(true, "");
                serve(link, sandbox, opening, &now, &mut place).await
            }
            Err(reason) => Ended::Lost(reason),
        };
        match ended {
            Ended::Over => {
                sandbox.end_link();
                std::future::pending::<()>().await;
            }
            Ended::Moved => backoff = BACKOFF,
            Ended::Lost(reason) => {
                tracing::debug!(sandbox_id = sandbox.id, reason, "link lost");
                sandbox.tell_linked(false, &reason);
                let lived = began.elapsed() > MAX_BACKOFF;
                backoff = if lived { BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
                tokio::select! {
                    () = tokio::time::sleep(backoff) => {}
                    _ = place.changed() => backoff = BACKOFF,
                }
            }
        }
    }
}

/// How links are spoken, with the memory that they may take.
pub(crate) fn protocol() -> Builder {
    let mut protocol = Builder::new();
    protocol
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(STREAM_BYTES)
        .initial_connection_window_size(LINK_BYTES)
        .data_frame_budget(FRAME_BUDGET)
        .max_send_buffer_size(SEND_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .max_concurrent_reset_streams(16);
    protocol
}

/// Opens a link.
async fn open(opening: &Opening, place: &Place) -> Result<Connection<Paced, Bytes>, String> {
    let opening = async {
        let stream = handed_over(opening, place).await?;
        protocol().handshake(paced(stream)).await.map_err(|e| format!("the relay does not speak HTTP/2: {e}"))
    };
    let late = |_| format!("no link within {} s", OPEN_DEADLINE.as_secs());
    tokio::time::timeout(OPEN_DEADLINE, opening).await.map_err(late)?
}

/// The connection that the sidecar has handed to its relay.
async fn handed_over(opening: &Opening, place: &Place) -> Result<Stream, String> {
    let dialer = &opening.dialer;
    let unreachable = |e: std::io::Error| format!("the sidecar does not answer: {e}");
    let (sender, connection) = grpc::Connection::open(dialer, &place.address).await.map_err(unreachable)?;
    let mut agent = AgentClient::with_origin(sender, Uri::from_static("http://sandbox"));
    let ticket = uuid::Uuid::new_v4();
    let mut request = tonic::Request::new(OpenEgressRequest { ticket: ticket.as_bytes().to_vec() });
    let token =
        MetadataValue::try_from(format!("Bearer {}", place.token)).map_err(|_| "the token is no text")?;
    request.metadata_mut().insert("authorization", token);
    let refused = |status: tonic::Status| format!("the sidecar refuses: {}", status.message());
    let mut call = std::pin::pin!(agent.open_egress(request));
    let answered = tokio::time::timeout(ANSWER_WAIT, &mut call).await;
    let waits = answered.is_err();
    if let Ok(answer) = answered {
        answer.map_err(refused)?;
    }
    let mut stream = dialer.connect(&place.address).await.map_err(unreachable)?;
    probe(&stream).map_err(unreachable)?;
    // From here on the link is the sandbox's.
    if !opening.live.is_live() {
        return Err("the feed was lost meanwhile".to_owned());
    }
    stream.write_all(&[&MARK[..], ticket.as_bytes()].concat()).await.map_err(unreachable)?;
    if waits {
        call.await.map_err(refused)?;
    }
    drop(connection);
    Ok(stream)
}

/// Notices a sandbox that has vanished while nothing is sent. Rarer than would cost an idle sandbox anything.
fn probe(stream: &Stream) -> std::io::Result<()> {
    let Stream::Tcp(socket) = stream else { return Ok(()) };
    let every = Duration::from_secs(10);
    SockRef::from(socket)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(every).with_interval(every).with_retries(2))?;
    SockRef::from(socket).set_tcp_user_timeout(Some(every * 3))
}

/// Completes when a link is to take no new connections: the replica drains, or serves the sandbox no more.
async fn over(draining: &mut watch::Receiver<bool>, sandbox: &Sandbox) {
    tokio::select! {
        Ok(_) = draining.wait_for(|draining| *draining) => {}
        () = sandbox.left() => {}
    }
}

/// Serves the programs' connections of a link until it ends.
async fn serve(
    mut link: Connection<Paced, Bytes>,
    sandbox: &Arc<Sandbox>,
    opening: &Arc<Opening>,
    served: &Place,
    place: &mut watch::Receiver<Place>,
) -> Ended {
    let mut draining = opening.draining.clone();
    let mut drains = *draining.borrow();
    if drains {
        link.graceful_shutdown();
    }
    loop {
        tokio::select! {
            accepted = link.accept() => match accepted {
                Some(Ok((request, respond))) => accept(sandbox, opening, request, respond),
                Some(Err(e)) => return Ended::Lost(e.to_string()),
                None if drains => return Ended::Over,
                None => return Ended::Lost("the relay has closed it".to_owned()),
            },
            () = over(&mut draining, sandbox), if !drains => {
                drains = true;
                link.graceful_shutdown();
            }
            Ok(()) = place.changed() => {
                let now = place.borrow_and_update();
                // A new token alone opens no new link.
                if (&now.address, now.generation) != (&served.address, served.generation) {
                    return Ended::Moved;
                }
            }
        }
    }
}

fn accept(
    sandbox: &Arc<Sandbox>,
    opening: &Arc<Opening>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let mut response = Response::new(());
    if request.method() != Method::CONNECT {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        // A relay that is gone needs no answer.
        drop(respond.send_response(response, true));
        return;
    }
    let Ok(outgoing) = respond.send_response(response, false) else { return };
    let stream = Carried::new(request.into_body(), outgoing);
    opening.connections.spawn(front::serve(Arc::clone(sandbox), Arc::clone(&opening.outside), stream));
}
