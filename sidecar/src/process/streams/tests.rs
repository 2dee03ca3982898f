use std::io::{PipeWriter, pipe};

use wire::agent::ExecRequest;

use super::*;
use crate::request::{Call, Command};
use crate::ring::Budget;

/// How much a program with a buffer of its own writes at a time.
const PIECE_BYTES: usize = 8 << 10;

fn process() -> Process {
    let request = ExecRequest { exec_id: "x".into(), command: "x".into(), ..ExecRequest::default() };
    let command = Command::new(request, Call::Start).unwrap();
    Process::new(&command, Call::Start, &Budget::new(1 << 30).into(), 0, 0)
}

fn output_of(bytes: OwnedFd) -> Output {
    fcntl(&bytes, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    Output::Pipe(bytes)
}

fn size(pipe: &impl AsFd) -> usize {
    fcntl(pipe, FcntlArg::F_GETPIPE_SZ).unwrap().try_into().unwrap()
}

/// Writes 2 MiB in pieces, one a millisecond. Returns the sizes of the pipe during the second MiB, and its size after a
/// rest.
async fn write_and_rest(writer: PipeWriter) -> (Vec<usize>, usize) {
    let end = PipeEnd::to_write(writer.into()).unwrap();
    let mut sizes = Vec::new();
    for written in 0..2 * FLOOD_BYTES / PIECE_BYTES {
        assert_eq!(end.write(&[0; PIECE_BYTES]).await.unwrap(), PIECE_BYTES);
        sleep(Duration::from_millis(1)).await;
        if written > FLOOD_BYTES / PIECE_BYTES {
            sizes.push(size(&end));
        }
    }
    sleep(Duration::from_secs(1)).await;
    let at_rest = size(&end);
    end.write(b"x").await.unwrap();
    (sizes, at_rest)
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_small_pieces_stays_one_until_it_rests_and_then_gives_its_pipe_back() {
    let (reader, writer) = pipe().unwrap();
    let (output, process) = (output_of(reader.into()), process());
    let ((), (sizes, at_rest)) =
        tokio::join!(pump(&output, &process, Stream::Stdout), write_and_rest(writer));
    assert!(sizes.iter().all(|size| *size == MAX_PIPE_BYTES), "{sizes:?}");
    assert_eq!(at_rest, USUAL_PIPE_BYTES);
    assert_eq!(process.output(Stream::Stdout).total_bytes(), 2 * FLOOD_BYTES as u64 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_cannot_be_watched_is_read_all_the_same() {
    let bytes = vec![b'x'; 3 << 20];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    // No kernel can watch a regular file.
    let output = output_of(std::fs::File::open(file.path()).unwrap().into());
    let process = process();
    pump(&output, &process, Stream::Stdout).await;
    assert_eq!(process.output(Stream::Stdout).kept(), bytes);
}
