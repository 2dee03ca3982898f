//! What passes on a link.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::link::status;
use super::{Installed, read_to_end};
use crate::sandbox::LIMIT;

/// More than the windows and the sockets' buffers together hold.
const LARGE: usize = 8 << 20;

#[tokio::test]
async fn bytes_pass_as_they_are_in_both_directions_and_each_ends_by_itself() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    for (host, family) in [("127.0.0.1", "4"), ("::1", "6")] {
        let mut program = TcpStream::connect((host, egress.port)).await.unwrap();
        program.write_all(b"\0\x05 no \r\n\r\n protocol").await.unwrap();
        let mut stream = link.accept().await;
        assert_eq!(stream.request.uri().to_string(), format!("egress:{}", egress.port));
        assert_eq!(stream.request.headers()["rollbox-family"], family);
        assert_eq!(stream.take(19).await, b"\0\x05 no \r\n\r\n protocol");
        program.shutdown().await.unwrap();
        assert!(stream.next().await.is_none());
        stream.send(b"the answer after ", false);
        stream.send(b"the question's end", true);
        assert_eq!(read_to_end(&mut program).await, b"the answer after the question's end");
    }
    assert_eq!(egress.refused().await, 0);
}

#[tokio::test]
async fn much_passes_whole_and_at_the_pace_of_the_reader() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let data: Vec<u8> = (0..=u8::MAX).cycle().take(LARGE).collect();
    let program = egress.program().await;
    let (mut read, mut write) = program.into_split();
    let sent = data.clone();
    let sending = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut stream = link.accept().await;
    assert!(stream.take(LARGE).await == data);
    sending.await.unwrap();
    assert!(stream.next().await.is_none());
    // HTTP/2's own flow control is in the way of the rest.
    stream.down.send_data(data.clone().into(), true).unwrap();
    let mut received = Vec::new();
    read.read_to_end(&mut received).await.unwrap();
    assert!(received == data);
}

#[tokio::test]
async fn small_pieces_before_a_program_that_does_not_read_end_no_link() {
    /// More than the HTTP/2 library lets wait in it for this link, each counted with 255 bytes: half the window.
    const PIECES: usize = 200_000;
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    // Sockets that hold little, so that most waits in the relay.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut slow = socket.connect(([127, 0, 0, 1], egress.port).into()).await.unwrap();
    slow.write_all(b"x").await.unwrap();
    let mut chatty = link.accept().await;
    for _ in 0..PIECES {
        chatty.send(b"y", false);
    }
    chatty.send(b"", true);
    let mut quick = egress.program().await;
    quick.write_all(b"x").await.unwrap();
    let mut answered = link.accept().await;
    answered.send(b"z", true);
    assert_eq!(read_to_end(&mut quick).await, b"z");
    assert_eq!(read_to_end(&mut slow).await, vec![b'y'; PIECES]);
}

#[tokio::test]
async fn the_memory_of_what_has_passed_is_given_back_after_the_last_connection() {
    /// Half of a connection's window; more than the buffer of a link, which stays.
    const SOME_KIB: u64 = 2 << 10;
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let mut program = egress.program().await;
    program.write_all(b"x").await.unwrap();
    let mut stream = link.accept().await;
    let relay = egress.relay(0).await;
    let resident_kib = || status(relay, "VmRSS").parse::<u64>().unwrap();
    let becomes = async |wanted: &dyn Fn(u64) -> bool| {
        while !wanted(resident_kib()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let most = resident_kib() + SOME_KIB;
    // More than the sockets take of what nobody reads.
    stream.down.send_data(vec![0; 4 * LARGE].into(), true).unwrap();
    tokio::time::timeout(LIMIT, becomes(&|held| held > most)).await.unwrap();
    drop(program);
    tokio::time::timeout(LIMIT, becomes(&|held| held < most)).await.unwrap();
}

#[tokio::test]
async fn what_is_cut_is_no_end() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let (mut cut, mut kept) = (egress.program().await, egress.program().await);
    // One after the other: what is asked for first by one program does not wait for another one.
    cut.write_all(b"x").await.unwrap();
    let mut first = link.accept().await;
    kept.write_all(b"x").await.unwrap();
    let mut second = link.accept().await;
    first.down.send_reset(h2::Reason::CANCEL);
    assert_eq!(cut.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    second.send(b"y", false);
    assert_eq!(kept.read_u8().await.unwrap(), b'y');
    // A program that is killed is no end either.
    kept.set_zero_linger().unwrap();
    drop(kept);
    assert_eq!(second.take(1).await, b"x");
    assert!(second.next().await.unwrap().is_err());
    let mut open = egress.program().await;
    open.write_all(b"x").await.unwrap();
    let mut third = link.accept().await;
    third.send(b"y", false);
    assert_eq!(open.read_u8().await.unwrap(), b'y');
    link.cut().await;
    assert_eq!(open.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
