use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use http::HeaderValue;
use resolve::Route;
use tokio::sync::{mpsc, watch};
use wire::agent::agent_client::AgentClient;
use wire::agent::{AttachEvent, ResizeRequest, SignalRequest, attach_event::Event};
use wire::{Code, Problem};

use super::message::{self, AttachMessage, Gathered};
use super::stdin::{self, Progress, Stdin};
use crate::admission::Permit;
use crate::auth::Bearer;
use crate::call::{Calls, authorized};
use crate::coalesced::Coalesced;
use crate::drain::Call;
use crate::http::fields;
use crate::http::socket::{self, Gone, Reader, Writer};
use crate::telemetry::{AttachEnd, Direction, Open, Stream};
use crate::upstream::{self, Channel, Loss};

/// Signals and sizes that may wait for the sidecar; no human user sends more at one time.
const MAX_CONTROLS: usize = 64;

/// One attached client, and the exec that it is attached to.
pub(super) struct Relay {
    pub(super) calls: Arc<Calls>,
    pub(super) bearer: Bearer,
    pub(super) route: Arc<Route>,
    pub(super) agent: AgentClient<Channel>,
    pub(super) exec_id: String,
    pub(super) events: Coalesced<AttachEvent>,
    pub(super) request_id: HeaderValue,
    pub(super) _call: Call,
    pub(super) _place: Permit,
}

/// How a relay ends.
enum Ending {
    /// This is the last message.
    Last(Message),
    /// There is no result, for this reason; the number is the close code.
    Problem(Box<Problem>, u16),
    /// The gateway drains; another gateway continues from the client's offsets.
    Drain,
    /// The client has gone.
    Left,
}

impl From<Gone> for Ending {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Wrong(problem, code) => Self::Problem(problem, code),
            Gone::Left => Self::Left,
        }
    }
}

/// A signal or a size for the command.
enum Control {
    Signal(SignalRequest),
    Resize(ResizeRequest),
}

impl Relay {
    /// Moves bytes both ways until the command, the client, the sandbox or this gateway ends.
    pub(super) async fn run(mut self, socket: WebSocket) {
        let calls = Arc::clone(&self.calls);
        let _open = Open::new(calls.metrics(), Stream::Attach);
        let (mut reader, mut writer) = socket::split(socket);
        let ending = self.relay(&mut reader, &mut writer).await;
        self.finish(ending, reader, writer).await;
    }

    async fn relay(&mut self, reader: &mut Reader, writer: &mut Writer) -> Ending {
        let (handled, done) = watch::channel(0);
        let (mut stdin, writes, progress) = stdin::stdin(done);
        let (controls, orders) = mpsc::channel(MAX_CONTROLS);
        let exec_id = self.exec_id.clone();
        let (header, calls) = (&self.bearer.header, &self.calls);
        let request_id = self.request_id.to_str().unwrap_or_default();
        let down = Down { calls, route: &self.route, request_id, events: &mut self.events, writer };
        tokio::select! {
            biased;
            () = calls.drain().started() => Ending::Drain,
            ending = listen(calls, &exec_id, reader, &mut stdin, &controls) => ending,
            ending = down.run(progress) => ending,
            problem = control(self.agent.clone(), header, orders, handled) => Ending::Problem(problem.into(), socket::NORMAL),
            () = writes.run(self.agent.clone(), header, &exec_id) => Ending::Left,
        }
    }

    async fn finish(&self, ending: Ending, reader: Reader, mut writer: Writer) {
        let request_id = self.request_id.to_str().unwrap_or_default();
        let metrics = self.calls.metrics();
        let (last, code, reason) = match ending {
            Ending::Left => return metrics.attach_ended(AttachEnd::Left),
            Ending::Drain => {
                metrics.attach_ended(AttachEnd::Drained);
                (None, socket::RESTARTS, "this gateway is shutting down; attach again")
            }
            Ending::Last(message) => {
                metrics.attach_ended(AttachEnd::Result);
                (Some(message), socket::NORMAL, "")
            }
            Ending::Problem(problem, code) => {
                metrics.attach_ended(AttachEnd::Problem);
                metrics.problem(problem.code);
                tracing::info!(
                    request_id,
                    code = problem.code.name(),
                    detail = problem.detail,
                    "attach ended with a problem"
                );
                (Some(socket::problem(&problem, request_id)), code, "")
            }
        };
        if let Some(last) = last
            && writer.send(last).await.is_err()
        {
            return;
        }
        writer.close(reader, code, reason).await;
    }
}

/// The direction from the command to the client: its output, and how far its input was taken.
struct Down<'a> {
    calls: &'a Calls,
    route: &'a Arc<Route>,
    request_id: &'a str,
    events: &'a mut Coalesced<AttachEvent>,
    writer: &'a mut Writer,
}

impl Down<'_> {
    async fn run(mut self, progress: watch::Receiver<Progress>) -> Ending {
        self.relay(progress).await.unwrap_or_else(Ending::from)
    }

    async fn relay(&mut self, mut progress: watch::Receiver<Progress>) -> Result<Ending, Gone> {
        loop {
            tokio::select! {
                () = self.writer.ping_is_due() => self.writer.ping().await?,
                Ok(()) = progress.changed() => {
                    let Progress { taken, closed } = progress.borrow_and_update().clone();
                    self.writer.send(message::taken(taken)).await?;
                    if let Some(problem) = closed {
                        self.writer.send(message::stdin_closed(&problem, self.request_id)).await?;
                    }
                }
                event = self.calls.interruptible(self.route, self.events.message()) => match event {
                    Ok(Some(AttachEvent { event })) => {
                        if let Some(ending) = self.event(event).await? {
                            return Ok(ending);
                        }
                    }
                    Ok(None) => return Ok(unfinished()),
                    Err(interrupted) => {
                        let problem = self.writer.pinging(interrupted.explain(self.calls, self.route)).await?;
                        return Ok(Ending::Problem(problem.into(), socket::NORMAL));
                    }
                }
            }
        }
    }

    async fn event(&mut self, event: Option<Event>) -> Result<Option<Ending>, Gone> {
        let mut output = match event {
            Some(Event::Stdout(chunk)) => Gathered::stdout(chunk),
            Some(Event::Stderr(chunk)) => Gathered::stderr(chunk),
            Some(Event::Result(result)) => return Ok(Some(Ending::Last(message::result(&result)))),
            // An event that only a newer sidecar knows.
            None => return Ok(None),
        };
        while let Some(AttachEvent { event }) = self.events.ready(|next| output.takes(&next.event)) {
            output.add(event);
        }
        self.writer.send(output.message()).await?;
        self.calls.metrics().streamed(Stream::Attach, Direction::Out, output.bytes());
        Ok(None)
    }
}

fn unfinished() -> Ending {
    let detail = "the sidecar ended the stream without a result";
    Ending::Problem(Problem::new(Code::StreamInterrupted, detail).into(), socket::NORMAL)
}

/// The direction from the client to the command. Never waits for the command: a Ctrl-C must overtake input that the
/// command does not read.
async fn listen(
    calls: &Calls,
    exec_id: &str,
    reader: &mut Reader,
    stdin: &mut Stdin,
    controls: &mpsc::Sender<Control>,
) -> Ending {
    loop {
        let decoded = match reader.next().await {
            Ok(socket::ClientMessage::Binary(data)) => message::binary(data),
            Ok(socket::ClientMessage::Text(text)) => message::text(&text),
            Err(gone) => return gone.into(),
        };
        if let Err(problem) = decoded.and_then(|message| handle(calls, exec_id, message, stdin, controls)) {
            return Ending::Problem(problem.into(), socket::MALFORMED);
        }
    }
}

fn handle(
    calls: &Calls,
    exec_id: &str,
    message: AttachMessage,
    stdin: &mut Stdin,
    controls: &mpsc::Sender<Control>,
) -> Result<(), Problem> {
    let exec_id = exec_id.to_owned();
    let control = match message {
        AttachMessage::Stdin { offset, data, eof } => {
            calls.metrics().streamed(Stream::Attach, Direction::In, data.len());
            return stdin.write(offset, data, eof);
        }
        AttachMessage::Signal { signal, tree } => {
            Control::Signal(SignalRequest { exec_id, signal, tree, ..Default::default() })
        }
        AttachMessage::Resize(terminal) => {
            Control::Resize(ResizeRequest { exec_id, terminal: Some(terminal) })
        }
    };
    let full = |_| fields::invalid("message", format!("{MAX_CONTROLS} signals and sizes wait already"));
    controls.try_send(control).map_err(full)?;
    stdin.control();
    Ok(())
}

/// Sends signals and sizes to the sidecar, one after the other; completes with the first problem.
async fn control(
    mut agent: AgentClient<Channel>,
    header: &HeaderValue,
    mut orders: mpsc::Receiver<Control>,
    handled: watch::Sender<u64>,
) -> Problem {
    while let Some(order) = orders.recv().await {
        let done = match order {
            Control::Signal(signal) => agent.signal(authorized(signal, header)).await.map(drop),
            Control::Resize(size) => agent.resize(authorized(size, header)).await.map(drop),
        };
        if let Err(Loss::Answered(problem)) = done.map_err(|status| upstream::of(&status))
            // The command ended meanwhile, which its result reports.
            && !matches!(problem.code, Code::Conflict | Code::ExecNotFound)
        {
            return problem;
        }
        handled.send_modify(|handled| *handled += 1);
    }
    std::future::pending().await
}
