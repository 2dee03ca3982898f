//! The sidecar's side of the relay: starts it when it is needed, starts it again when it ends, and hands it links.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::select_all;
use nix::errno::Errno;
use nix::sys::signal::{Signal as Kill, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use wire::agent::Refused;

use super::ARGUMENT;
use super::control::{Control, Report, Told, pair};
use super::refusals::Refusals;
use super::sockets::Sockets;
use crate::{log, sys};

/// Links that wait for the relay to start.
const QUEUE: usize = 4;
/// Between the end of a relay and the next one, doubled up to the longest for one that did not live for longer than that:
/// user code that found a way to end relays shall not keep the sidecar busy.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// A relay that does not take a link within this time hangs, and is killed.
const TAKE_WITHIN: Duration = Duration::from_secs(5);
/// A killed process whose end is not seen by then is looked for again.
const REAP_PAUSE: Duration = Duration::from_millis(50);

/// The handle for the calls of egress. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Relay {
    links: mpsc::Sender<OwnedFd>,
    refused: Arc<AtomicU64>,
    refusals: Arc<Mutex<Refusals>>,
}

/// Keeps the relay of a sandbox.
#[derive(Debug)]
pub struct Supervisor {
    sockets: Sockets,
    links: mpsc::Receiver<OwnedFd>,
    refused: Arc<AtomicU64>,
    refusals: Arc<Mutex<Refusals>>,
    had_link: bool,
}

impl Relay {
    /// The handle, and what [`Supervisor::keep`] runs on.
    pub fn new(sockets: Sockets) -> (Self, Supervisor) {
        let (sender, links) = mpsc::channel(QUEUE);
        let relay = Self { links: sender, refused: Arc::default(), refusals: Arc::default() };
        let Self { refused, refusals, .. } = relay.clone();
        (relay, Supervisor { sockets, links, refused, refusals, had_link: false })
    }

    /// Hands over a link, and starts the relay if none runs.
    pub async fn link(&self, link: OwnedFd) {
        // An error: the sidecar ends.
        let _ = self.links.send(link).await;
    }

    /// Connections that relays have refused so far because there was no link. A report of the last 50 ms may be missing.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The newest of them that have named a host, as late as that.
    pub fn refusals(&self) -> Vec<Refused> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).all()
    }
}

impl Supervisor {
    /// Keeps the relay until the sidecar ends, with which the relay ends too.
    ///
    /// # Errors
    /// The end of children cannot be watched for.
    pub async fn keep(mut self) -> io::Result<Infallible> {
        let mut ends = signal(SignalKind::child())?;
        sys::hear_of_stops()?;
        let mut pause = PAUSE;
        loop {
            let mut began = Instant::now();
            let why = match self.needed().await {
                Ok(first) => {
                    began = Instant::now();
                    self.run(first, &mut ends).await
                }
                Err(err) => Err(err),
            };
            match &why {
                Ok(why) => log::event("relay_ended", &[("why", why)]),
                Err(err) => log::event("relay_not_started", &[("error", err)]),
            }
            pause = if began.elapsed() > LONGEST_PAUSE { PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            sleep(pause).await;
        }
    }

    /// Waits until there is something for a relay to do; returns the link, if that is it.
    async fn needed(&mut self) -> io::Result<Option<OwnedFd>> {
        tokio::select! {
            link = self.links.recv() => Ok(link),
            wanted = wanted(&self.sockets) => wanted.map(|()| None),
        }
    }

    /// Runs a relay until it is of no use any more, and says why.
    async fn run(&mut self, first: Option<OwnedFd>, ends: &mut Signal) -> io::Result<String> {
        let running = Running::start(&self.sockets, self.had_link)?;
        let why = self.serve(&running, first, ends).await;
        running.end(ends).await;
        Ok(why)
    }

    /// Serves a relay until it ends, stops or hangs; returns why it is of no use any more.
    async fn serve(&mut self, running: &Running, first: Option<OwnedFd>, ends: &mut Signal) -> String {
        let before = self.refused.load(Ordering::Relaxed);
        let (mut handed, mut taken, mut late) = (0, 0, Instant::now());
        let mut next = first;
        loop {
            if let Some(link) = next.take() {
                if let Err(err) = running.control.link(link.as_fd()) {
                    return format!("it takes no link: {err}");
                }
                self.had_link = true;
                handed += 1;
                late = Instant::now() + TAKE_WITHIN;
            }
            if let Some(over) = running.over() {
                return over;
            }
            tokio::select! {
                link = self.links.recv() => next = link,
                told = running.control.told() => match told {
                    Ok(Some(Told::Report(Report { refused, links }))) => {
                        self.refused.store(before + refused, Ordering::Relaxed);
                        taken = links;
                    }
                    Ok(Some(Told::Denied(denied))) => {
                        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).add(at_ms, denied);
                    }
                    Ok(None) => return "it closed its socket".to_owned(),
                    Err(err) => return err.to_string(),
                },
                _ = ends.recv() => {}
                () = sleep_until(late), if taken < handed => return "it hangs".to_owned(),
            }
        }
    }
}

/// Completes when a program connects or asks for a name. Nothing is accepted here: bytes of user code are the relay's.
async fn wanted(sockets: &Sockets) -> io::Result<()> {
    let watched = sockets.all().map(|socket| sys::watch(socket.as_fd(), Interest::READABLE));
    let watched = watched.collect::<io::Result<Vec<_>>>()?;
    let ready = watched.iter().map(|socket| Box::pin(async { socket.readable().await.map(drop) }));
    select_all(ready).await.0
}

/// A relay that has been started.
struct Running {
    control: Control,
    pid: Pid,
}

impl Running {
    fn start(sockets: &Sockets, had_link: bool) -> io::Result<Self> {
        let (control, theirs) = pair()?;
        let child = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let running = Self { control, pid: Pid::from_raw(child.id().cast_signed()) };
        // Should it fail, the relay is gone already, which is noticed next.
        let _ = running.control.begin(sockets.port, had_link, sockets.proxies.len(), sockets.all());
        Ok(running)
    }

    /// Why it runs no more: it has ended, or somebody has stopped it.
    fn over(&self) -> Option<String> {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => None,
            Ok(status) => Some(format!("{status:?}")),
            Err(err) => Some(err.to_string()),
        }
    }

    /// Kills it, and waits for its end.
    async fn end(self, ends: &mut Signal) {
        // An error: it has been reaped, and nobody else has this number: it would be reaped here as well.
        while waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive) {
            let _ = kill(self.pid, Kill::SIGKILL);
            tokio::select! {
                _ = ends.recv() => {}
                () = sleep(REAP_PAUSE) => {}
            }
        }
    }
}
