//! Legs: connections that carry the bytes of large transfers (a port's output, files, archives) beside the gRPC call.
//!
//! Under gVisor the messages of a call cost a sandbox more than twice what bare bytes cost. So a caller may name a
//! random ticket in its call and, when the transfer is large, open a second connection that shows this ticket: the rest
//! of the bytes goes over it. The call stays open: it carries the authorization, counts as use and reports the end. A
//! ticket is worthless without its call.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::timeout;
use wire::{Code, Problem};

/// The first bytes of a leg, before its ticket, and the answer to a leg into the sandbox. HTTP/2 begins with a P.
pub const MARK: [u8; 4] = *b"LEG ";
/// Length of a ticket: random bytes that the caller chooses.
pub const TICKET_BYTES: usize = 16;

type Ticket = [u8; TICKET_BYTES];
type Waiting = HashMap<Ticket, (Way, oneshot::Sender<Leg>)>;

/// A connection of bytes.
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send {
    /// Gives the socket itself, which is not watched any more and does not block.
    ///
    /// # Errors
    /// There is none, or the runtime does not let go of it.
    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd>;
}

/// A connection that carries the rest of a transfer.
pub type Leg = Box<dyn Connection>;

/// The direction of the data on a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the caller.
    Out,
    /// Into the sandbox. Such a leg is answered when it connects: its sender must know that the sidecar reads it.
    In,
}

/// The calls that wait for a leg. Cheap to clone.
#[derive(Clone, Default)]
pub struct Legs {
    awaited: Arc<Mutex<Waiting>>,
}

impl std::fmt::Debug for Legs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Legs").field("awaited", &self.lock().len()).finish()
    }
}

/// The expected leg of one call. Once this is dropped, its ticket is refused.
pub struct Awaited {
    legs: Legs,
    ticket: Ticket,
    come: oneshot::Receiver<Leg>,
}

impl Legs {
    /// Registers a call that expects the leg with `ticket`; `None` if the ticket is empty.
    ///
    /// # Errors
    /// `invalid_argument`: the ticket has a wrong length, or is another call's.
    pub fn expect(&self, ticket: &[u8], way: Way) -> Result<Option<Awaited>, Problem> {
        if ticket.is_empty() {
            return Ok(None);
        }
        let refused = |why: String| Problem::new(Code::InvalidArgument, why).with("field", "ticket");
        let ticket = Ticket::try_from(ticket).map_err(|_| {
            refused(format!("a ticket has {TICKET_BYTES} bytes; this one has {}", ticket.len()))
        })?;
        let mut awaited = self.lock();
        if awaited.contains_key(&ticket) {
            return Err(refused("another call uses this ticket already".to_owned()));
        }
        let (leg, come) = oneshot::channel();
        awaited.insert(ticket, (way, leg));
        drop(awaited);
        Ok(Some(Awaited { legs: self.clone(), ticket, come }))
    }

    /// Hands a connection to the call that waits for its ticket; closes it when there is no such call or no mark.
    ///
    /// # Errors
    /// The connection broke before it had shown its ticket.
    pub async fn bring(&self, mut leg: impl Connection + 'static) -> io::Result<()> {
        let mut shown = [0; MARK.len() + TICKET_BYTES];
        leg.read_exact(&mut shown).await?;
        let (mark, ticket) = shown.split_at(MARK.len());
        // The mark first: a connection that is no leg must not use up the ticket of one that is on its way.
        let ticket = Ticket::try_from(ticket).ok().filter(|_| mark == MARK);
        let awaited = ticket.and_then(|ticket| self.lock().remove(&ticket));
        if let Some((way, awaited)) = awaited {
            if way == Way::In {
                leg.write_all(&MARK).await?;
            }
            // A call that ended at this moment drops the leg.
            drop(awaited.send(Box::new(leg)));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// The leg, if it has connected.
    pub fn take(&mut self) -> Option<Leg> {
        self.come.try_recv().ok()
    }

    /// Waits for the leg; `None` if it does not connect within `within`.
    pub async fn come(mut self, within: Duration) -> Option<Leg> {
        timeout(within, &mut self.come).await.ok()?.ok()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.legs.lock().remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    impl Connection for DuplexStream {
        fn into_socket(self: Box<Self>) -> io::Result<OwnedFd> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    const TICKET: Ticket = [7; TICKET_BYTES];
    const NO_MARK: [u8; MARK.len()] = [0; MARK.len()];

    async fn brought(legs: &Legs, shown: &[u8]) -> DuplexStream {
        let (mut ours, theirs) = tokio::io::duplex(64);
        ours.write_all(shown).await.unwrap();
        legs.bring(theirs).await.unwrap();
        ours
    }

    #[tokio::test]
    async fn a_leg_comes_once_and_to_the_call_of_its_ticket_only() {
        let legs = Legs::default();
        let mut call = legs.expect(&TICKET, Way::Out).unwrap().unwrap();
        for strange in
            [[MARK.as_slice(), &[8; TICKET_BYTES]].concat(), [NO_MARK.as_slice(), &TICKET].concat()]
        {
            assert_eq!(brought(&legs, &strange).await.read(&mut [0]).await.unwrap(), 0);
            assert!(call.take().is_none());
        }
        let shown = [MARK.as_slice(), &TICKET].concat();
        let mut peer = brought(&legs, &shown).await;
        let mut leg = call.take().unwrap();
        leg.write_all(b"x").await.unwrap();
        assert_eq!(peer.read_u8().await.unwrap(), b'x');
        assert_eq!(brought(&legs, &shown).await.read(&mut [0]).await.unwrap(), 0);
        assert!(call.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leg_for_data_is_answered_and_not_waited_for_without_end() {
        let legs = Legs::default();
        let call = legs.expect(&TICKET, Way::In).unwrap().unwrap();
        let mut peer = brought(&legs, &[MARK.as_slice(), &TICKET].concat()).await;
        let mut answered = [0; MARK.len()];
        peer.read_exact(&mut answered).await.unwrap();
        assert_eq!(answered, MARK);
        peer.write_all(b"x").await.unwrap();
        let within = Duration::from_secs(5);
        assert_eq!(call.come(within).await.unwrap().read_u8().await.unwrap(), b'x');
        let alone = legs.expect(&TICKET, Way::In).unwrap().unwrap();
        assert!(alone.come(within).await.is_none() && legs.lock().is_empty());
    }

    #[test]
    fn what_is_no_ticket_or_taken_is_refused_and_an_ended_call_leaves_none_behind() {
        let legs = Legs::default();
        assert!(legs.expect(&[], Way::In).unwrap().is_none());
        let call = legs.expect(&TICKET, Way::Out).unwrap();
        for bad in [&TICKET[..], &[1; 15], &[1; 17]] {
            assert_eq!(legs.expect(bad, Way::In).map(drop).unwrap_err().code, Code::InvalidArgument);
        }
        drop(call);
        assert!(legs.lock().is_empty());
    }
}
