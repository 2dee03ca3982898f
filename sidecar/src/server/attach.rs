//! Output as a stream, from any offset, at the pace of whoever reads it.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::agent::attach_event::Event;
use wire::agent::{AttachEvent, Chunk};

use super::answer;
use crate::process::{Phase, Position, Process, Reader, Stream};

/// Bytes in one event.
const MAX_CHUNK_BYTES: usize = 128 << 10;
/// Events that wait for a slow reader; what comes after stays in the ring, or is let go of there.
const QUEUE: usize = 2;

/// The events of a process.
pub(super) type Events = ReceiverStream<Result<AttachEvent, Status>>;

/// Streams a process from `position` on; ends after its result, or when the reader is gone.
pub(super) fn attach(process: Arc<Process>, position: Position) -> Events {
    let (events, queue) = mpsc::channel(QUEUE);
    // Before anything else of the command is read: it waits for this reader from here on.
    let reader = Reader::new(&process, position);
    tokio::spawn(async move {
        let _waiter = process.waiter();
        tokio::select! {
            () = feed(&process, &reader, position, &events) => {}
            // A silent command would otherwise hold the feed of a reader who is long gone.
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
        // Looked at before the output: what it says then, all output of that time is seen.
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
            Phase::Failed(problem) => Err(answer::status(&problem)),
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

/// A reader who begins further on is sent nothing before; so one who only writes begins beyond all that is ever written.
fn read(process: &Process, stream: Stream, position: &mut u64) -> Option<Chunk> {
    let output = process.output(stream);
    if *position > output.total_bytes() {
        return None;
    }
    let (offset, data) = output.read_from(*position, MAX_CHUNK_BYTES);
    *position = offset + data.len() as u64;
    (!data.is_empty()).then_some(Chunk { offset, data })
}
