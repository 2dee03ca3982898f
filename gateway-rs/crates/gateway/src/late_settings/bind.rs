use std::time::Duration;

use serde::Deserialize;
use wire::{Code, Problem};

use super::request::Split;
use crate::auth;
use crate::call::{Calls, Interrupted, authorized};
use crate::upstream::{self, Loss};

/// A sidecar answers in milliseconds. The caller waits meanwhile, and there are other sandboxes.
const WITHIN: Duration = Duration::from_secs(3);

/// A sandbox in the control plane's answer to a create.
#[derive(Debug, Deserialize)]
pub(super) struct Made {
    pub(super) id: String,
    token: String,
}

/// A sandbox that does not have its settings.
#[derive(Debug)]
pub(super) struct Unbound {
    pub(super) id: String,
    pub(super) why: Problem,
}

/// Binds the settings over the connection that the first exec will use. Safe to repeat.
///
/// # Errors
/// [`Unbound`], when the sidecar refuses them, does not answer or is gone.
pub(super) async fn bind(calls: &Calls, made: Made, split: &Split) -> Result<(), Unbound> {
    let bound = tokio::time::timeout(WITHIN, attempt(calls, &made, split)).await;
    let silent = |_| unreachable(&made.id, &format!("no answer within {} s", WITHIN.as_secs()));
    bound.map_err(silent).and_then(|bound| bound).map_err(|why| Unbound { id: made.id, why })
}

async fn attempt(calls: &Calls, made: &Made, split: &Split) -> Result<(), Problem> {
    let route = calls.resolve(&made.id).await?;
    let mut agent = calls.agent(&route);
    let request = authorized(split.late.to_request(&split.digest), &auth::bearer(&made.token));
    match calls.interruptible(&route, agent.configure(request)).await {
        Ok(_) => Ok(()),
        // Without the wait for an end's cause that other calls have: the control plane decides, and knows it.
        Err(Interrupted::Failed(status)) => Err(match upstream::of(&status) {
            Loss::Answered(problem) => problem,
            Loss::Unreachable(reason) | Loss::Broken(reason) => unreachable(&made.id, &reason),
        }),
        Err(interrupted) => Err(interrupted.explain(calls, &route).await),
    }
}

fn unreachable(id: &str, reason: &str) -> Problem {
    Problem::new(Code::SandboxUnreachable, format!("the settings of sandbox {id} cannot be bound: {reason}"))
}
