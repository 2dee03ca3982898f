//! The relay's process.

use std::io;
use std::net::{TcpListener as StdListener, UdpSocket as StdUdp};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::asked::Asked;
use super::control::{Control, Order};
use super::links::{Family, Links, MAX_CONNECTIONS, READ_BYTES, WIDE_STREAM_BYTES};
use super::tally::Tally;
use super::wanted::Wanted;
use super::{carry, confine, first_request, inside, names, refusal, socks};
use crate::itself::Itself;
use crate::{log, sys};

/// After a failed accept (out of descriptors) an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Exit code when the relay cannot begin.
const EXIT_SOFTWARE: u8 = 70;

/// Runs the relay, with its end of the control socket as standard input, until the sidecar is gone.
pub fn main() -> ExitCode {
    let run = || {
        // A copy, since standard input itself would stay open for ever.
        let control = io::stdin().as_fd().try_clone_to_owned()?;
        sys::keep_memory(2 * READ_BYTES, WIDE_STREAM_BYTES as usize);
        confine::give_up()?;
        let itself = Itself::here();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(control, itself))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            log::event("relay_failed", &[("error", &err)]);
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

async fn serve(control: OwnedFd, itself: Itself) -> io::Result<()> {
    let control = Control::new(control)?;
    confine::close_in()?;
    let Some(Order::Begin { port, had_link, proxies, names }) = control.order().await? else {
        return Err(io::Error::other("the sidecar did not say what to accept from"));
    };
    let tally = Arc::new(Tally::default());
    let links = Arc::new(Links::new(port, had_link));
    let serving = Arc::new(Serving { itself, links: Arc::clone(&links), tally: Arc::clone(&tally) });
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for (listener, family) in proxies.into_iter().zip([Family::V4, Family::V6]) {
        let listener = TcpListener::from_std(StdListener::from(listener))?;
        tokio::spawn(accept(listener, family, Arc::clone(&serving), Arc::clone(&places)));
    }
    let mut names = names.into_iter();
    if let (Some(datagrams), Some(streams)) = (names.next(), names.next()) {
        tokio::spawn(names::answer_datagrams(UdpSocket::from_std(StdUdp::from(datagrams))?));
        tokio::spawn(names::answer_streams(TcpListener::from_std(StdListener::from(streams))?));
    }
    tokio::select! {
        told = follow(&control, &links, &tally) => told,
        never = tally.report(&control) => match never {},
    }
}

/// Takes links until the sidecar is gone.
async fn follow(control: &Control, links: &Arc<Links>, tally: &Tally) -> io::Result<()> {
    while let Some(order) = control.order().await? {
        if let Order::Link(link) = order {
            links.take(link)?;
            tally.link();
        }
    }
    Ok(())
}

/// What connections need, the same for all.
struct Serving {
    itself: Itself,
    links: Arc<Links>,
    tally: Arc<Tally>,
}

async fn accept(listener: TcpListener, family: Family, serving: Arc<Serving>, places: Arc<Semaphore>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // One too many is closed at once, and not left in the queue, where it would look like a server that hangs.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let serving = Arc::clone(&serving);
        tokio::spawn(async move {
            program(stream, family, &serving).await;
            drop(place);
        });
    }
}

/// Serves a program's connection to its end.
async fn program(mut stream: TcpStream, family: Family, serving: &Serving) {
    // Small pieces of a program's protocol must not wait for each other.
    let _ = stream.set_nodelay(true);
    let outside = match first_request::read(&mut stream, &serving.itself).await {
        Some(Asked::Outside(outside)) => outside,
        Some(Asked::Inside(asked, read)) => return inside::serve(stream, &asked, read).await,
        None => return,
    };
    match serving.links.open(family).await {
        Ok(opened) => carry::carry(stream, outside, opened).await,
        Err(refusal) => {
            let (wanted, answer) = if outside.read.first() == Some(&socks::VERSION) {
                socks::refused(&outside, refusal)
            } else {
                (Wanted::of_http(&outside.read), refusal.http())
            };
            serving.tally.refused(wanted, refusal);
            refusal::answer(stream, &answer).await;
        }
    }
}
