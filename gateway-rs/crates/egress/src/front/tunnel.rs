use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional_with_sizes};

use crate::gate::Gate;
use crate::limited_stream::LimitedStream;
use crate::outside::Reached;
use crate::sandbox::Passage;

/// What is moved at once, to the server and to the program. The pages that a program loads are larger than what it asks.
const UP_BYTES: usize = 16 << 10;
const DOWN_BYTES: usize = 256 << 10;

/// Moves bytes both ways until both sides have ended, nothing comes any more, or the passage has ended. `held` was read of the program already.
///
/// # Errors
/// Either side broke, or the passage was cut.
pub(super) async fn run(
    program: impl AsyncRead + AsyncWrite + Unpin,
    held: BytesMut,
    reached: Reached,
    passage: Passage,
) -> io::Result<()> {
    let passage = Arc::new(passage);
    let mut program = Gate::new(program, held, Arc::clone(&passage));
    let (mut server, watch) = (LimitedStream::new(reached.stream, Arc::clone(&passage)), passage);
    let moved = tokio::select! {
        moved = copy_bidirectional_with_sizes(&mut program, &mut server, UP_BYTES, DOWN_BYTES) => moved,
        why = watch.idle() => {
            watch.ends(&why);
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    drop(watch);
    // The server's socket is closed before anything else: a switch waits for that.
    drop(server);
    if let (mut program, Some(alert)) = program.refused() {
        program.write_all(alert).await?;
        program.shutdown().await?;
    }
    moved.map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use wire::egress::{self, Mode, Verdict};

    use super::*;
    use crate::policy::{Blocked, Policy, Target};
    use crate::sandbox::{Common, Place, Protocol, Sandbox};

    /// A tunnel to a server of this test under a policy that allows everything; the server's and the program's side.
    async fn tunnel(idle: Duration) -> (Arc<Sandbox>, TcpStream, tokio::io::DuplexStream) {
        let blocked = Blocked::new(Vec::new(), vec!["127.0.0.0/8".parse().unwrap()]);
        let common = Arc::new(Common { blocked, idle, max_connections: 1, ..Common::default() });
        let place = Place { address: "unix:/a.sock".parse().unwrap(), generation: 1, token: String::new() };
        let open = egress::Policy { mode: Mode::Open.into(), ..egress::Policy::default() };
        let policy = Arc::new(Policy::read(&open).unwrap());
        let sandbox = Sandbox::new("sb-1".into(), common, place, Arc::default(), (1, policy));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Target::parse(&address.to_string(), None).unwrap();
        let passage = Passage::admit(&sandbox, target, address.ip(), Protocol::Connect).unwrap();
        let reached = Reached { stream: TcpStream::connect(address).await.unwrap(), address: address.ip() };
        let (server, _) = listener.accept().await.unwrap();
        let (program, near) = tokio::io::duplex(1024);
        tokio::spawn(async move { drop(run(near, BytesMut::new(), reached, passage).await) });
        (sandbox, server, program)
    }

    fn end(sandbox: &Sandbox) -> Verdict {
        let told = sandbox.common().reports.take("e").unwrap().attempts;
        told.iter().find(|one| one.duration_ms > 0).unwrap().verdict()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_left_after_a_while() {
        let (sandbox, mut server, mut program) = tunnel(Duration::from_secs(900)).await;
        let began = tokio::time::Instant::now();
        assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(began.elapsed().as_secs(), 900);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "its connection is closed too");
        assert_eq!(end(&sandbox), Verdict::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_that_stays_open_alone_does_not_stay_for_ever() {
        let (sandbox, mut server, mut program) = tunnel(Duration::from_secs(900)).await;
        server.shutdown().await.unwrap();
        // The program sees the end of the server's side, and does not end its own.
        assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
        while program.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
        }
        assert_eq!(end(&sandbox), Verdict::Idle);
    }
}
