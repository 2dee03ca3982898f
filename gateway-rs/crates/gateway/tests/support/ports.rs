//! Ports of a fake sidecar: it connects to ports of this machine.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use wire::agent::{PortFrame, WaitPortRequest};

use super::sidecar::status;

pub type Frames = Pin<Box<dyn Stream<Item = Result<PortFrame, Status>> + Send>>;

pub async fn connect(mut frames: Streaming<PortFrame>) -> Result<Frames, Status> {
    let first = frames.message().await?.ok_or_else(|| status("invalid_argument"))?;
    let port = u16::try_from(first.port).map_err(|_| status("invalid_argument"))?;
    let (answers, queue) = mpsc::channel(2);
    answers.try_send(Ok(PortFrame::default())).unwrap();
    if first.datagrams {
        tokio::spawn(datagrams(port, frames, answers));
    } else {
        let socket = TcpStream::connect(("127.0.0.1", port)).await.map_err(|_| status("port_unreachable"))?;
        tokio::spawn(async move {
            tokio::select! {
                () = carry(socket, frames, &answers) => {}
                () = answers.closed() => {}
            }
        });
    }
    Ok(Box::pin(stream::unfold(queue, async |mut queue| Some((queue.recv().await?, queue)))))
}

pub async fn listens(request: WaitPortRequest) -> bool {
    let port = u16::try_from(request.port).unwrap();
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

type Answers = mpsc::Sender<Result<PortFrame, Status>>;

async fn carry(socket: TcpStream, mut frames: Streaming<PortFrame>, answers: &Answers) {
    let (mut read, mut write) = socket.into_split();
    let up = async {
        while let Ok(frame) = frames.message().await {
            let frame = frame.unwrap_or(PortFrame { eof: true, ..PortFrame::default() });
            let _ = write.write_all(&frame.data).await;
            if frame.eof {
                let _ = write.shutdown().await;
                return true;
            }
        }
        false
    };
    let down = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let Ok(count) = read.read(&mut buffer).await else {
                let _ = answers.send(Err(status("port_unreachable"))).await;
                return;
            };
            let data = Bytes::copy_from_slice(&buffer[..count]);
            let frame = PortFrame { data, eof: count == 0, ..PortFrame::default() };
            if answers.send(Ok(frame)).await.is_err() || count == 0 {
                return;
            }
        }
    };
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        whole = &mut up => if whole { down.await },
        () = &mut down => { up.await; }
    }
}

async fn datagrams(port: u16, mut frames: Streaming<PortFrame>, answers: Answers) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(("127.0.0.1", port)).await.unwrap();
    let mut buffer = vec![0; 1 << 16];
    loop {
        tokio::select! {
            received = socket.recv(&mut buffer) => {
                let frame = match received {
                    Ok(count) => Ok(PortFrame { data: Bytes::copy_from_slice(&buffer[..count]), ..PortFrame::default() }),
                    Err(_) => Err(status("port_unreachable")),
                };
                if answers.send(frame).await.is_err() {
                    return;
                }
            }
            frame = frames.message() => match frame {
                Ok(Some(frame)) => drop(socket.send(&frame.data).await),
                _ => return,
            },
        }
    }
}
