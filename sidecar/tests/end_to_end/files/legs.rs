//! File transfers over legs, beside the call.

use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use wire::Code;
use wire::agent::{FileInfo, ReadFileRequest, WriteArchiveRequest, WriteFileRequest};

use super::contents::wait_until;
use super::*;

async fn leg(sandbox: &Sandbox, ticket: &[u8]) -> UnixStream {
    let mut leg = UnixStream::connect(sandbox.directory.path().join("agent.sock")).await.unwrap();
    leg.write_all(&[b"LEG ".as_slice(), ticket].concat()).await.unwrap();
    leg
}

#[tokio::test]
async fn data_move_to_a_leg_and_the_call_tells_their_digest() {
    // The slow computation comes first: a client that computes does not answer HTTP/2 pings.
    let data = (0..=255).collect::<Vec<u8>>().repeat(16 << 12);
    let sha256 = Sha256::digest(&data).to_vec();
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    std::fs::write(&path, &data).unwrap();
    let ticket = vec![7; 16];
    let request = ReadFileRequest { path: bytes(&path), ticket: ticket.clone(), ..Default::default() };
    let mut call = sandbox.client.clone().read_file(signed(request)).await.unwrap().into_inner();
    let mut leg = leg(&sandbox, &ticket).await;
    let mut read = Vec::new();
    loop {
        let chunk = call.message().await.unwrap().unwrap();
        read.extend_from_slice(&chunk.data);
        if chunk.moved {
            break;
        }
    }
    assert!(read.len() < data.len());
    leg.read_to_end(&mut read).await.unwrap();
    assert!(read == data);
    let last = call.message().await.unwrap().unwrap();
    assert_eq!((last.sha256, last.data.len()), (sha256, 0));
    assert!(call.message().await.unwrap().is_none());
    let bad = ReadFileRequest { path: bytes(&path), ticket: vec![7; 15], ..Default::default() };
    assert_eq!(super::read(&sandbox, bad).await.unwrap_err().code, Code::InvalidArgument);
}

/// A write to `path` that has begun, its messages, and its leg.
struct Upload {
    answer: tokio::task::JoinHandle<Result<FileInfo, Problem>>,
    messages: mpsc::Sender<WriteFileRequest>,
    leg: UnixStream,
}

async fn upload(sandbox: &Sandbox, path: &Path) -> Upload {
    let (messages, queue) = mpsc::channel(4);
    let mut client = sandbox.client.clone();
    let call = async move { client.write_file(signed(ReceiverStream::new(queue))).await };
    let answer = tokio::spawn(async move {
        call.await.map(tonic::Response::into_inner).map_err(|status| problem(&status))
    });
    let first = WriteFileRequest { path: bytes(path), ticket: vec![7; 16], ..Default::default() };
    messages.send(first).await.unwrap();
    messages.send(WriteFileRequest { data: "first ".into(), ..Default::default() }).await.unwrap();
    // A second file (the temporary one) shows that the write has begun.
    wait_until(|| names(path.parent().unwrap()).len() == 2).await;
    let mut leg = leg(sandbox, &[7; 16]).await;
    let mut answered = [0; 4];
    leg.read_exact(&mut answered).await.unwrap();
    assert_eq!(&answered, b"LEG ");
    messages.send(WriteFileRequest { moved: true, ..Default::default() }).await.unwrap();
    Upload { answer, messages, leg }
}

#[tokio::test]
async fn what_comes_over_a_leg_is_part_of_the_file() {
    let data: Vec<u8> = (0..=255).cycle().take(8 << 20).collect();
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    std::fs::write(&path, "old").unwrap();
    let Upload { answer, messages, mut leg } = upload(&sandbox, &path).await;
    leg.write_all(&data).await.unwrap();
    leg.shutdown().await.unwrap();
    let last = last(" last", data.len());
    messages.send(last).await.unwrap();
    let whole = [b"first ".as_slice(), &data, b" last"].concat();
    let info = answer.await.unwrap().unwrap();
    assert_eq!((info.size_bytes, info.sha256), (whole.len() as u64, Sha256::digest(&whole).to_vec()));
    assert!(std::fs::read(&path).unwrap() == whole);
}

fn last(data: &'static str, moved_bytes: usize) -> WriteFileRequest {
    WriteFileRequest { data: data.into(), eof: true, moved_bytes: moved_bytes as u64, ..Default::default() }
}

#[tokio::test]
async fn a_leg_that_ends_is_no_end_of_the_data() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let path = folder.join("data");
    std::fs::write(&path, "old").unwrap();
    // Once without a last message, and once with one that announces more bytes than came.
    for said in [None, Some(last("", 5))] {
        let Upload { answer, messages, mut leg } = upload(&sandbox, &path).await;
        leg.write_all(b"half").await.unwrap();
        leg.shutdown().await.unwrap();
        if let Some(last) = said {
            messages.send(last).await.unwrap();
        }
        drop(messages);
        assert_eq!(answer.await.unwrap().unwrap_err().code, Code::StreamInterrupted);
        wait_until(|| names(&folder) == ["data"]).await;
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[tokio::test]
async fn a_caller_that_goes_while_its_leg_is_silent_leaves_nothing() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let path = folder.join("data");
    std::fs::write(&path, "old").unwrap();
    let Upload { answer, mut leg, .. } = upload(&sandbox, &path).await;
    leg.write_all(b"half").await.unwrap();
    answer.abort();
    wait_until(|| names(&folder) == ["data"]).await;
    assert_eq!(leg.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[tokio::test]
async fn data_cannot_move_to_a_leg_that_nobody_brings() {
    let sandbox = Sandbox::start().await;
    let path = bytes(folder(&sandbox));
    let first = WriteArchiveRequest { path, ticket: vec![7; 16], ..Default::default() };
    let moved = WriteArchiveRequest { moved: true, ..Default::default() };
    let answer = sandbox.client.clone().write_archive(signed(iter([first.clone(), moved]))).await;
    assert_eq!(problem(&answer.unwrap_err()).code, Code::StreamInterrupted);
    let bad = WriteArchiveRequest { ticket: vec![7; 17], ..first };
    let answer = sandbox.client.clone().write_archive(signed(iter([bad]))).await;
    assert_eq!(problem(&answer.unwrap_err()).code, Code::InvalidArgument);
}
