//! The messages between the sidecar and its relay: packets on a socket of the two, some with descriptors.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, send, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::wanted::{HOST_BYTES, Protocol, Wanted};
use crate::sys;

const BEGIN: u8 = b'B';
const LINK: u8 = b'L';
const BEGIN_BYTES: usize = 5;
const REPORT: u8 = b'R';
const REPORT_BYTES: usize = 17;
const DENIED: u8 = b'D';
/// Of such a message, before the host.
const DENIED_BYTES: usize = 9;

/// What the sidecar tells the relay.
#[derive(Debug)]
pub(super) enum Order {
    /// The first: the sockets to accept from.
    Begin {
        /// The proxy's port.
        port: u16,
        /// Whether an earlier relay had a link: then a missing one is worth waiting for.
        had_link: bool,
        /// The proxy's sockets.
        proxies: Vec<OwnedFd>,
        /// The resolver's sockets: UDP, then TCP, or none.
        names: Vec<OwnedFd>,
    },
    /// A link to use from now on.
    Link(OwnedFd),
}

/// What the relay tells the sidecar; both count from the relay's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Connections that were refused because there was no link.
    pub(super) refused: u64,
    /// Links that were taken.
    pub(super) links: u64,
}

/// A host that was refused since the relay's last message about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    /// What was asked for.
    pub(super) wanted: Wanted,
    /// There was a link, and no other one came in time; otherwise there was none.
    pub(super) lost: bool,
    /// How often.
    pub(super) count: u32,
}

/// A message of the relay.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Counts.
    Report(Report),
    /// A host.
    Denied(Denied),
}

/// One end of the socket.
#[derive(Debug)]
pub(super) struct Control(AsyncFd<OwnedFd>);

/// Makes the socket: the sidecar's end, and the one that the relay gets as standard input.
///
/// # Errors
/// The kernel refuses.
pub(super) fn pair() -> io::Result<(Control, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok((Control::new(ours)?, theirs))
}

impl Control {
    /// An end of the socket that is in hand.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        sys::watch(socket, Interest::READABLE).map(Self)
    }

    /// Sends the first order.
    ///
    /// # Errors
    /// The relay is gone, or does not read.
    pub(super) fn begin<'a>(
        &self,
        port: u16,
        had_link: bool,
        proxies: usize,
        sockets: impl Iterator<Item = &'a OwnedFd>,
    ) -> io::Result<()> {
        let [high, low] = port.to_be_bytes();
        let proxies = u8::try_from(proxies).map_err(io::Error::other)?;
        let sockets: Vec<BorrowedFd<'_>> = sockets.map(AsFd::as_fd).collect();
        self.send(&[BEGIN, high, low, u8::from(had_link), proxies], &sockets)
    }

    /// Hands over a link.
    ///
    /// # Errors
    /// The relay is gone, or does not read.
    pub(super) fn link(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&[LINK], &[link])
    }

    fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let rights: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&rights)];
        let parts = [IoSlice::new(message)];
        sendmsg::<()>(self.0.as_raw_fd(), &parts, &control, MsgFlags::MSG_DONTWAIT, None)?;
        Ok(())
    }

    /// Sends a report. One that finds no room is dropped: the next one counts from the start as well.
    pub(super) fn report(&self, report: Report) {
        let mut message = [0; REPORT_BYTES];
        message[0] = REPORT;
        message[1..9].copy_from_slice(&report.refused.to_be_bytes());
        message[9..].copy_from_slice(&report.links.to_be_bytes());
        self.tell(&message);
    }

    /// Sends a host that was refused. One that finds no room is not on record.
    pub(super) fn denied(&self, denied: &Denied) {
        let Denied { wanted: Wanted { protocol, host, port }, lost, count } = denied;
        let mut message = vec![DENIED, *protocol as u8, u8::from(*lost)];
        message.extend_from_slice(&port.to_be_bytes());
        message.extend_from_slice(&count.to_be_bytes());
        message.extend_from_slice(host.as_bytes());
        self.tell(&message);
    }

    fn tell(&self, message: &[u8]) {
        // A sidecar that is gone is noticed by the reader.
        let _ = send(self.0.as_raw_fd(), message, MsgFlags::MSG_DONTWAIT);
    }

    /// The sidecar's next order; `None` when the sidecar is gone.
    ///
    /// # Errors
    /// The message is none of the above.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn order(&self) -> io::Result<Option<Order>> {
        let mut message = [0; BEGIN_BYTES];
        let (count, mut descriptors) = self.receive(&mut message).await?;
        match message[..count] {
            [] => Ok(None),
            [BEGIN, high, low, had_link, proxies] if descriptors.len() >= usize::from(proxies) => {
                let names = descriptors.split_off(proxies.into()).into();
                let port = u16::from_be_bytes([high, low]);
                Ok(Some(Order::Begin { port, had_link: had_link != 0, proxies: descriptors.into(), names }))
            }
            [LINK] => descriptors.pop_front().map(|link| Some(Order::Link(link))).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }

    /// The relay's next message; `None` when it is gone.
    ///
    /// # Errors
    /// The message is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn told(&self) -> io::Result<Option<Told>> {
        // One byte more than the longest has: what was cut off is none.
        let mut message = [0; DENIED_BYTES + HOST_BYTES + 1];
        // A relay has no descriptors to send; any that come are closed.
        let (count, _) = self.receive(&mut message).await?;
        match &message[..count] {
            [] => Ok(None),
            [REPORT, numbers @ ..] => report(numbers).map(Told::Report).ok_or_else(unknown).map(Some),
            [DENIED, rest @ ..] => denied(rest).map(Told::Denied).ok_or_else(unknown).map(Some),
            _ => Err(unknown()),
        }
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, VecDeque<OwnedFd>)> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut descriptors = VecDeque::new();
            match ready.try_io(|socket| sys::receive(socket.as_fd(), buffer, &mut descriptors)) {
                Ok(received) => return Ok((received?, descriptors)),
                Err(_would_block) => {}
            }
        }
    }
}

fn report(numbers: &[u8]) -> Option<Report> {
    let (refused, links) = numbers.split_first_chunk()?;
    Some(Report {
        refused: u64::from_be_bytes(*refused),
        links: u64::from_be_bytes(*links.first_chunk().filter(|_| links.len() == 8)?),
    })
}

/// The relay reads what user code sends, so nothing of it is taken for what it should be.
fn denied(bytes: &[u8]) -> Option<Denied> {
    let [protocol, lost, rest @ ..] = bytes else { return None };
    let (port, rest) = rest.split_first_chunk()?;
    let (count, host) = rest.split_first_chunk()?;
    let wanted = Wanted::new(Protocol::of(*protocol)?, host, u16::from_be_bytes(*port))?;
    let lost = *lost != 0;
    (host.len() <= HOST_BYTES).then_some(Denied { wanted, lost, count: u32::from_be_bytes(*count) })
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message between sidecar and relay is none that they know")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[tokio::test]
    async fn orders_and_reports_arrive_as_they_were_sent_with_their_descriptors() {
        let (sidecar, relay) = pair().unwrap();
        let relay = Control::new(relay).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let sockets = [OwnedFd::from(writer), OwnedFd::from(reader.try_clone().unwrap())];
        sidecar.begin(3128, true, 1, sockets.iter()).unwrap();
        let Some(Order::Begin { port, had_link, mut proxies, names }) = relay.order().await.unwrap() else {
            panic!("not the first order");
        };
        assert_eq!((port, had_link, proxies.len(), names.len()), (3128, true, 1, 1));
        io::PipeWriter::from(proxies.pop().unwrap()).write_all(b"x").unwrap();
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1);
        sidecar.link(sockets[1].as_fd()).unwrap();
        assert!(matches!(relay.order().await.unwrap(), Some(Order::Link(_))));
        let report = Report { refused: 7, links: 1 };
        relay.report(report);
        assert_eq!(sidecar.told().await.unwrap(), Some(Told::Report(report)));
        for host in ["a", &"h".repeat(300)] {
            let wanted = Wanted::new(Protocol::Socks5, host.as_bytes(), 443).unwrap();
            let denied = Denied { wanted, lost: true, count: 3 };
            relay.denied(&denied);
            assert_eq!(sidecar.told().await.unwrap(), Some(Told::Denied(denied)));
        }
        drop(relay);
        assert_eq!(sidecar.told().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_no_message_is_an_error_and_an_end_is_none() {
        let (sidecar, relay) = pair().unwrap();
        let relay = Control::new(relay).unwrap();
        sidecar.send(&[LINK], &[]).unwrap();
        assert!(relay.order().await.is_err());
        sidecar.send(b"what", &[]).unwrap();
        assert!(relay.order().await.is_err());
        let long = [b"D\x00\x00\x00\x01\x00\x00\x00\x01".as_slice(), &[b'a'; 256]].concat();
        for none in [
            &b"short"[..],
            b"R1234567",
            b"D\x00\x00\x00\x01\x00\x00\x00\x01",
            b"D\x09\x00\x00\x01\x00\x00\x00\x01a",
            &long,
        ] {
            relay.send(none, &[]).unwrap();
            assert!(sidecar.told().await.is_err(), "{none:?}");
        }
        // What is not printable does not come through, whatever the relay sends.
        relay.send(b"D\x00\x00\x00\x01\x00\x00\x00\x01a\n\xff", &[]).unwrap();
        let wanted = Wanted::new(Protocol::Http, b"a??", 1).unwrap();
        assert_eq!(
            sidecar.told().await.unwrap(),
            Some(Told::Denied(Denied { wanted, lost: false, count: 1 }))
        );
        drop(sidecar);
        assert!(relay.order().await.unwrap().is_none());
    }
}
