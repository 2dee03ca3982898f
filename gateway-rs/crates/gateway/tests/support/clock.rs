//! A clock that stands still until a test moves it, while sockets continue to work: so nothing depends on the
//! machine's speed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// After so long without progress the clock runs by itself, so that every timeout fires, and the test has failed.
const STALL: Duration = Duration::from_secs(120);

/// More time than any wait of the gateway takes.
const LONG: Duration = Duration::from_secs(600);

/// Rounds of the runtime within which everything on its way between tasks and sockets of this process arrives.
const TURNS: usize = 20;

/// The clock of the test's runtime, stopped until this is dropped.
pub struct Stopped {
    progress: mpsc::Sender<()>,
    stalled: Arc<AtomicBool>,
    echo: tokio::sync::Mutex<(TcpStream, TcpStream)>,
}

impl Stopped {
    pub async fn now() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        near.set_nodelay(true).unwrap();
        let ((progress, made), stalled) = (mpsc::channel(), Arc::new(AtomicBool::new(false)));
        let stall = Arc::clone(&stalled);
        // An idle runtime moves a paused clock, but not while a blocking task runs.
        tokio::task::spawn_blocking(move || {
            let mut waited = Ok(());
            while waited.is_ok() {
                waited = made.recv_timeout(STALL);
            }
            stall.store(waited == Err(RecvTimeoutError::Timeout), Ordering::Relaxed);
        });
        tokio::time::pause();
        Self { progress, stalled, echo: (near, far).into() }
    }

    /// Advances the clock in one step. What is on its way arrives before and after it.
    pub async fn pass(&self, time: Duration) {
        self.settle().await;
        tokio::time::advance(time).await;
        self.settle().await;
    }

    /// Advances the clock in steps until `done` completes; returns its output and how much time passed.
    pub async fn until<T>(&self, step: Duration, done: impl Future<Output = T>) -> (T, Duration) {
        let (began, mut done) = (Instant::now(), pin!(done));
        loop {
            tokio::select! {
                biased;
                done = &mut done => return (done, began.elapsed()),
                () = self.settle() => {}
            }
            assert!(began.elapsed() < LONG, "the future did not complete in time");
            tokio::time::advance(step).await;
        }
    }

    /// Lets everything arrive that is on its way. Each round sends a byte through the kernel, behind all that was sent
    /// before.
    pub async fn settle(&self) {
        let _ = self.progress.send(());
        let (near, far) = &mut *self.echo.lock().await;
        // Left by a call that was dropped in the middle.
        while far.try_read(&mut [0; TURNS]).is_ok_and(|count| count > 0) {}
        for _ in 0..TURNS {
            near.write_u8(0).await.unwrap();
            far.read_u8().await.unwrap();
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Not after a failure, since the runtime may be gone then.
        if !std::thread::panicking() {
            tokio::time::resume();
            assert!(!self.stalled.load(Ordering::Relaxed), "no progress for {STALL:?}");
        }
    }
}

/// A pause of real time, also while the clock is stopped.
#[allow(clippy::disallowed_methods, reason = "on a thread of its own")]
pub async fn real_pause(time: Duration) {
    tokio::task::spawn_blocking(move || std::thread::sleep(time)).await.unwrap();
}
