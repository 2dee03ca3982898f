use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::outside::{Outside, Reached};
use crate::policy::{Refusal, Target};
use crate::sandbox::{ConnectionPermit, Passage, Protocol, Sandbox};

/// Timeout for the first byte, and for each message of a request.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// A program's connection under way.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) outside: Arc<Outside>,
    /// Its place among the open connections, or why it has none.
    pub(super) permit: Result<ConnectionPermit, Refusal>,
}

impl Asking {
    /// Decides on a target and connects to it. A refusal is on record when this returns.
    pub(super) async fn open(
        &self,
        target: &Target,
        protocol: Protocol,
    ) -> Result<(Reached, Passage), Refusal> {
        let began = Instant::now();
        let opened = self.try_open(target, protocol).await;
        if opened.is_ok() {
            self.sandbox.common().metrics.set_up(began.elapsed());
        }
        opened.inspect_err(|refusal| self.tell(&target.host.to_string(), target.port, protocol, refusal))
    }

    async fn try_open(&self, target: &Target, protocol: Protocol) -> Result<(Reached, Passage), Refusal> {
        if let Err(limit) = &self.permit {
            return Err(limit.clone());
        }
        let (policy, blocked) = (self.sandbox.policy(), &self.sandbox.common().blocked);
        let reached = self.outside.reach(target, protocol, &policy, blocked).await?;
        // The policy may have changed while the connection was made.
        let passage = Passage::admit(&self.sandbox, target.clone(), reached.address, protocol)?;
        Ok((reached, passage))
    }

    /// Puts a refusal on record; `host` as it was asked for.
    pub(super) fn tell(&self, host: &str, port: u16, protocol: Protocol, refusal: &Refusal) {
        self.sandbox.tell_refused(host, port, protocol, refusal);
    }
}

/// A request that did not come in time.
pub(super) fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}
