use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wire::{Code, Problem};

use crate::{Directory, Dns, Found, Route};

/// How often both are asked. Whoever waits has a good token, so the sandbox exists or did: a control plane under load
/// pushes late, one that is being replaced (5 s) may not know of it any more, and a cluster under load names it late.
const ROUNDS: u32 = 8;

/// How often a port that is to become public is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Who may wait for that at one time: they bring no token, so anyone may ask.
const MAX_STRANGERS: usize = 256;

/// Sandbox id -> route, in this order:
/// 1. the table;
/// 2. the table again, as soon as the push comes, for at most `push_wait`;
/// 3. DNS, when there is a zone, for at most `push_wait`;
/// 4. 2 and 3 again, [`ROUNDS`] times.
#[derive(Debug)]
pub struct Resolver {
    directory: Arc<Directory>,
    dns: Option<Dns>,
    push_wait: Duration,
    strangers: Semaphore,
}

impl Resolver {
    /// A resolver over `directory`.
    pub fn new(directory: Arc<Directory>, dns: Option<Dns>, push_wait: Duration) -> Self {
        Self { directory, dns, push_wait, strangers: Semaphore::new(MAX_STRANGERS) }
    }

    /// The fallback behind it.
    pub fn dns(&self) -> Option<&Dns> {
        self.dns.as_ref()
    }

    /// The table behind it.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The route of a sandbox whose token was found good.
    ///
    /// # Errors
    /// The end cause of a sandbox that ended; `sandbox_not_found` for one that nobody knows.
    ///
    /// Cost: no await for a sandbox in the table; for one that nobody knows [`ROUNDS`] times `push_wait`, and as much
    /// again where no name server answers.
    pub async fn resolve(&self, sandbox_id: &str) -> Result<Arc<Route>, Problem> {
        let mut missing = "it is not in the route table".to_owned();
        for _ in 0..ROUNDS {
            if let Some(known) = known(self.directory.find(sandbox_id)) {
                return known;
            }
            let ends = Instant::now() + self.push_wait;
            let appears = self.directory.appears(sandbox_id);
            let appeared = tokio::time::timeout_at(ends, appears).await.unwrap_or(Found::Unknown);
            if let Some(known) = known(appeared) {
                return known;
            }
            // Where too many are awaited already, it is found at the next look.
            tokio::time::sleep_until(ends).await;
            match self.ask_dns(sandbox_id).await {
                Ok(found) => {
                    if let Some(known) = known(found) {
                        return known;
                    }
                }
                Err(why) => missing = why,
            }
        }
        let detail = format!("there is no sandbox {sandbox_id}: {missing}");
        Err(Problem::new(Code::SandboxNotFound, detail).with("sandbox_id", sandbox_id))
    }

    /// The route of a sandbox whose `port` is public, now or within `push_wait`: whoever has just made it so, or was told
    /// its address by him, may ask before the push has come. `None`: it is private; at once where the sandbox has ended,
    /// and where too many wait.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn becomes_public(&self, sandbox_id: &str, port: u16) -> Option<Arc<Route>> {
        let _place = self.strangers.try_acquire().ok()?;
        let public = async {
            loop {
                let public = self.directory.public(sandbox_id, port);
                if public.is_some() || matches!(self.directory.find(sandbox_id), Found::Ended(_)) {
                    return public;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(self.push_wait, public).await.ok().flatten()
    }

    /// Why there is no answer, when there is none.
    async fn ask_dns(&self, sandbox_id: &str) -> Result<Found, String> {
        let Some(dns) = &self.dns else { return Ok(Found::Unknown) };
        let answer = tokio::time::timeout(self.push_wait, dns.addresses(sandbox_id)).await;
        let addresses = answer.map_err(|_| "the name server did not answer")?.map_err(|e| e.to_string())?;
        let first = addresses.into_iter().next();
        Ok(first.map_or(Found::Unknown, |address| self.directory.place_from_dns(sandbox_id, address)))
    }
}

/// What `found` says, unless it says nothing.
fn known(found: Found) -> Option<Result<Arc<Route>, Problem>> {
    match found {
        Found::Live(route) => Some(Ok(route)),
        Found::Ended(tombstone) => Some(Err(tombstone.problem())),
        Found::Unknown => None,
    }
}
