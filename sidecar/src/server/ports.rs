//! The calls that connect to ports.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use wire::agent::{PortFrame, PortState, WaitPortRequest};
use wire::{Code, Problem};

use crate::auth::PortScope;
use crate::leg::{Legs, Way};
use crate::ports::{Answers, Ports, datagrams, dial, stream};
use crate::problem::status;

/// Timeout of the first message: a caller has it ready when it calls.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// Frames that wait for a slow reader; the rest stays in the socket of the sandbox's server.
const QUEUE: usize = 1;
/// Callers combine several calls for a longer wait.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The frames of a connection.
pub(super) type Frames = ReceiverStream<Result<PortFrame, Status>>;

/// Dials the port that the first message names; the connection ends with the call.
pub(super) async fn connect(
    ports: &Ports,
    legs: &Legs,
    request: Request<Streaming<PortFrame>>,
) -> Result<Frames, Problem> {
    let scope = request.extensions().get::<PortScope>().cloned();
    let mut frames = request.into_inner();
    let silent = |_| invalid("no message with the port arrived".to_owned());
    let first = match timeout(FIRST_WITHIN, frames.next()).await.map_err(silent)? {
        Some(Ok(first)) => first,
        _ => return Err(invalid("the call ended before its first message".to_owned())),
    };
    let port = allowed(ports, scope.as_ref(), first.port)?;
    let place = ports.place(first.datagrams)?;
    let (answers, queue) = mpsc::channel(QUEUE);
    if first.datagrams {
        greet(&answers);
        tokio::spawn(async move {
            let _place = place;
            until_gone(&answers, datagrams::carry(port, first, frames, &answers)).await;
        });
    } else {
        let leg = legs.expect(&first.ticket, Way::Out)?;
        let socket = dial::connect(port).await?;
        greet(&answers);
        tokio::spawn(async move {
            until_gone(&answers, stream::carry(port, &place, socket, first, frames, &answers, leg)).await;
        });
    }
    Ok(ReceiverStream::new(queue))
}

/// Whether something listens on the port; waits for it as long as the request says.
pub(super) async fn wait(ports: &Ports, request: Request<WaitPortRequest>) -> Result<PortState, Problem> {
    let scope = request.extensions().get::<PortScope>().cloned();
    let WaitPortRequest { port, timeout_ms } = request.into_inner();
    let port = allowed(ports, scope.as_ref(), port)?;
    let within = Duration::from_millis(timeout_ms);
    if within > MAX_WAIT {
        let detail = format!("a wait of {timeout_ms} ms is longer than {} ms", MAX_WAIT.as_millis());
        return Err(Problem::new(Code::InvalidArgument, detail).with("field", "timeout_ms"));
    }
    let _place = ports.place(false)?;
    Ok(PortState { listening: dial::listens(port, within).await })
}

fn allowed(ports: &Ports, scope: Option<&PortScope>, port: u32) -> Result<u16, Problem> {
    let port = ports.check(port)?;
    if scope.is_some_and(|scope| !scope.holds(port)) {
        let detail = format!("the token is not for port {port}");
        return Err(Problem::new(Code::PermissionDenied, detail).with("port", port));
    }
    Ok(port)
}

/// Sends the message that the connection is open. The queue has room for it: nothing was sent before.
fn greet(answers: &Answers) {
    let _ = answers.try_send(Ok(PortFrame::default()));
}

/// Ends with the caller: a connection without traffic would otherwise outlive a caller that is gone.
async fn until_gone(answers: &Answers, connection: impl Future<Output = Result<(), Problem>>) {
    tokio::select! {
        ended = connection => if let Err(problem) = ended {
            let _ = answers.send(Err(status(&problem))).await;
        },
        () = answers.closed() => {}
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(Code::InvalidArgument, detail).with("field", "port")
}
