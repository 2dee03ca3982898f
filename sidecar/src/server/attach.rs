//! Output as a stream, from any offset, at the pace of its reader.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::agent::attach_event::Event;
use wire::agent::{AttachEvent, Chunk};

use super::answer;
use crate::problem::status;
use crate::process::{Phase, Position, Process, Reader, Stream};

/// Bytes in one event.
const MAX_CHUNK_BYTES: usize = 128 << 10;
/// Events that wait for a slow reader; later output stays in the ring, or is dropped there.
const QUEUE: usize = 2;

/// The events of a process.
pub(super) type Events = ReceiverStream<Result<AttachEvent, Status>>;

/// Streams a process from `position` on; ends after its result, or when the reader is gone.
pub(super) fn attach(process: Arc<Process>, position: Position) -> Events {
    let (events, queue) = mpsc::channel(QUEUE);
    // Registered before any more of the command's output is read: from here on the output waits for this reader.
    let reader = Reader::new(&process, position);
    tokio::spawn(async move {
        let _waiter = process.waiter();
        tokio::select! {
            () = feed(&process, &reader, position, &events) => {}
            // While a command writes nothing, the feed would otherwise outlive a reader that is gone.
            () = events.closed() => {}
        }
    });
    ReceiverStream::new(queue)
}

async fn feed(
    process: &Process,
    reader: &Reader,
    mut position: Position,
    events: &mpsc::Sender<Result<AttachEvent, Status>>,
) {
    loop {
        let activity = process.activity();
        // Read before the output, so that all output up to this phase is sent.
        let phase = process.phase();
        while let Some(event) = next(process, &mut position) {
            if events.send(Ok(AttachEvent { event: Some(event) })).await.is_err() {
                return;
            }
            reader.took(position);
        }
        let last = match phase {
            Phase::Ended(ended) => {
                let result = answer::result_without_data(process, &ended, false);
                Ok(AttachEvent { event: Some(Event::Result(result)) })
            }
            Phase::Failed(problem) => Err(status(&problem)),
            Phase::Starting | Phase::Running { .. } => {
                activity.await;
                continue;
            }
        };
        let _ = events.send(last).await;
        return;
    }
}

/// The next piece of either stream, if there is one.
fn next(process: &Process, position: &mut Position) -> Option<Event> {
    let [stdout, stderr] = position;
    read(process, Stream::Stdout, stdout)
        .map(Event::Stdout)
        .or_else(|| read(process, Stream::Stderr, stderr).map(Event::Stderr))
}

/// A reader whose position is past the end is sent nothing until the output reaches it. So a client that only writes
/// attaches at an offset beyond all output.
fn read(process: &Process, stream: Stream, position: &mut u64) -> Option<Chunk> {
    let output = process.output(stream);
    if *position > output.total_bytes() {
        return None;
    }
    let (offset, data) = output.read_from(*position, MAX_CHUNK_BYTES);
    *position = offset + data.len() as u64;
    (!data.is_empty()).then_some(Chunk { offset, data })
}
