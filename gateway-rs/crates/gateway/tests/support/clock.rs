//! Time that stands still until a test moves it, while sockets work on: so nothing depends on how fast the machine is.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// After so long without progress time moves by itself, so that every timeout runs out, and the test has failed.
const STALL: Duration = Duration::from_secs(120);

/// More time than anything takes that is waited for.
const LONG: Duration = Duration::from_secs(600);

/// Turns of the runtime in which what is on its way between tasks and sockets of this process arrives.
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

    /// Moves time on in one step. What is on its way arrives before and after it.
    pub async fn pass(&self, time: Duration) {
        self.settle().await;
        tokio::time::advance(time).await;
        self.settle().await;
    }

    /// Moves time on in steps until `done` completes; what it gives, and how much time passed.
    pub async fn until<T>(&self, step: Duration, done: impl Future<Output = T>) -> (T, Duration) {
        let (began, mut done) = (Instant::now(), pin!(done));
        loop {
            tokio::select! {
                biased;
                done = &mut done => return (done, began.elapsed()),
                () = self.settle() => {}
            }
            assert!(began.elapsed() < LONG, "it does not come");
            tokio::time::advance(step).await;
        }
    }

    /// Lets what is on its way arrive. Each turn sends a byte through the kernel, behind all that was sent before.
    pub async fn settle(&self) {
        let _ = self.progress.send(());
        let (near, far) = &mut *self.echo.lock().await;
        // Of a call that was given up in the middle.
        while far.try_read(&mut [0; TURNS]).is_ok_and(|count| count > 0) {}
        for _ in 0..TURNS {
            near.write_u8(0).await.unwrap();
            far.read_u8().await.unwrap();
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Not after a failure: the runtime may be gone.
        if !std::thread::panicking() {
            tokio::time::resume();
            assert!(!self.stalled.load(Ordering::Relaxed), "nothing moved for {STALL:?}");
        }
    }
}

/// A pause of real time, also while the clock is stopped.
#[allow(clippy::disallowed_methods, reason = "on a thread of its own")]
pub async fn real_pause(time: Duration) {
    tokio::task::spawn_blocking(move || std::thread::sleep(time)).await.unwrap();
}
