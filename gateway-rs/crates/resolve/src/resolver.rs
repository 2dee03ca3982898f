use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wire::{Code, Problem};

use crate::{Directory, Dns, Found, Route};

/// How often push and DNS are tried. A caller that waits has a valid token, so the sandbox exists or has existed: a
/// control plane under load pushes late, one that is being replaced (5 s) may not know the sandbox any more, and a
/// cluster under load publishes its name late.
const ROUNDS: u32 = 8;

/// Interval at which a port is checked that may become public.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Callers that may wait for that at one time: they have no token, so any client can be one.
const MAX_UNAUTHENTICATED: usize = 256;

/// Sandbox id -> route, in this order:
/// 1. the table;
/// 2. the table again, as soon as the push arrives, for at most `push_wait`;
/// 3. DNS, when there is a zone, for at most `push_wait`;
/// 4. 2 and 3 again, [`ROUNDS`] times.
#[derive(Debug)]
pub struct Resolver {
    directory: Arc<Directory>,
    dns: Option<Dns>,
    push_wait: Duration,
    unauthenticated: Semaphore,
}

impl Resolver {
    /// A resolver over `directory`.
    pub fn new(directory: Arc<Directory>, dns: Option<Dns>, push_wait: Duration) -> Self {
        Self { directory, dns, push_wait, unauthenticated: Semaphore::new(MAX_UNAUTHENTICATED) }
    }

    /// The DNS fallback, if there is one.
    pub fn dns(&self) -> Option<&Dns> {
        self.dns.as_ref()
    }

    /// The route table.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Returns the route of a sandbox whose token was verified.
    ///
    /// # Errors
    /// The end cause of a sandbox that has ended; `sandbox_not_found` for one that neither the table nor DNS knows.
    ///
    /// Cost: no await for a sandbox in the table; for an unknown one [`ROUNDS`] times `push_wait`, and as much again
    /// where no name server answers.
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
            // If too many ids are awaited already, `appears` returns at once; the next round finds the route.
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

    /// Returns the route of a sandbox whose `port` is public, or becomes so within `push_wait`: a client that has just
    /// made it public, or was told its address, may call before the push has arrived. `None` if the port is private;
    /// at once if the sandbox has ended, or if too many callers wait.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn becomes_public(&self, sandbox_id: &str, port: u16) -> Option<Arc<Route>> {
        let _place = self.unauthenticated.try_acquire().ok()?;
        let public = async {
            loop {
                let public = self.directory.public(sandbox_id, port);
                if public.is_some() || matches!(self.directory.find(sandbox_id), Found::Ended(_)) {
                    return public;
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::time::timeout(self.push_wait, public).await.ok().flatten()
    }

    /// Looks the sandbox up in DNS. The error says why there is no answer.
    async fn ask_dns(&self, sandbox_id: &str) -> Result<Found, String> {
        let Some(dns) = &self.dns else { return Ok(Found::Unknown) };
        let answer = tokio::time::timeout(self.push_wait, dns.addresses(sandbox_id)).await;
        let addresses = answer.map_err(|_| "the name server did not answer")?.map_err(|e| e.to_string())?;
        let first = addresses.into_iter().next();
        Ok(first.map_or(Found::Unknown, |address| self.directory.place_from_dns(sandbox_id, address)))
    }
}

/// The route or the end cause; `None` for an unknown sandbox.
fn known(found: Found) -> Option<Result<Arc<Route>, Problem>> {
    match found {
        Found::Live(route) => Some(Ok(route)),
        Found::Ended(tombstone) => Some(Err(tombstone.problem())),
        Found::Unknown => None,
    }
}
