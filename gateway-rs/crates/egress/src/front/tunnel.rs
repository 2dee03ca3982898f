use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional_with_sizes};

use crate::gate::Gate;
use crate::outside::Reached;
use crate::sandbox::Passage;
use crate::watched::Watched;

/// What is moved at once, to the server and to the program. The pages that a program loads are larger than what it asks.
const UP_BYTES: usize = 16 << 10;
const DOWN_BYTES: usize = 64 << 10;

/// Moves bytes both ways until both sides have ended, or the passage has. `held` was read of the program already.
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
    let mut server = Watched::new(reached.stream, passage);
    let moved = copy_bidirectional_with_sizes(&mut program, &mut server, UP_BYTES, DOWN_BYTES).await;
    // The server's socket is closed before anything else: a switch waits for that.
    drop(server);
    if let (mut program, Some(alert)) = program.refused() {
        program.write_all(alert).await?;
        program.shutdown().await?;
    }
    moved.map(drop)
}
