//! The call that opens a link to egress.

use std::time::Duration;

use wire::agent::EgressOpened;
use wire::{Code, Problem};

use crate::leg::{Legs, Way};
use crate::log;
use crate::relay::supervisor::Relay;

/// How long the leg may take to come after the call.
const LEG_PATIENCE: Duration = Duration::from_secs(5);

/// Expects the leg with this ticket, and answers at once: the caller brings it when it is told so.
pub(super) fn open(relay: Option<&Relay>, legs: &Legs, ticket: &[u8]) -> Result<EgressOpened, Problem> {
    let absent = || Problem::new(Code::Unsupported, "egress is not installed for this sandbox");
    let relay = relay.cloned().ok_or_else(absent)?;
    let missing = || Problem::new(Code::InvalidArgument, "a link needs a ticket").with("field", "ticket");
    let awaited = legs.expect(ticket, Way::Out)?.ok_or_else(missing)?;
    let refused = relay.refused();
    tokio::spawn(async move {
        // A leg that does not come is its caller's to notice.
        let Some(leg) = awaited.come(LEG_PATIENCE).await else { return };
        match leg.into_socket() {
            Ok(link) => relay.link(link).await,
            Err(err) => log::event("link_not_handed_over", &[("error", &err)]),
        }
    });
    Ok(EgressOpened { refused })
}
