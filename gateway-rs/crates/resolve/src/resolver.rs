use std::sync::Arc;
use std::time::Duration;

use wire::{Code, Problem};

use crate::{Directory, Dns, Found, Route};

/// Sandbox id -> route, in this order:
/// 1. the table;
/// 2. the table again, as soon as the push comes, for at most `push_wait`;
/// 3. DNS, when there is a zone, for at most `push_wait` more.
#[derive(Debug)]
pub struct Resolver {
    directory: Arc<Directory>,
    dns: Option<Dns>,
    push_wait: Duration,
}

impl Resolver {
    /// A resolver over `directory`.
    pub fn new(directory: Arc<Directory>, dns: Option<Dns>, push_wait: Duration) -> Self {
        Self { directory, dns, push_wait }
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
    /// Cost: no await for a sandbox in the table.
    pub async fn resolve(&self, sandbox_id: &str) -> Result<Arc<Route>, Problem> {
        let mut found = self.directory.find(sandbox_id);
        if matches!(found, Found::Unknown) {
            let appears = self.directory.appears(sandbox_id);
            found = tokio::time::timeout(self.push_wait, appears).await.unwrap_or(Found::Unknown);
        }
        if matches!(found, Found::Unknown) {
            found = self.ask_dns(sandbox_id).await?;
        }
        match found {
            Found::Live(route) => Ok(route),
            Found::Ended(tombstone) => Err(tombstone.problem()),
            Found::Unknown => Err(not_found(sandbox_id, "it is not in the route table")),
        }
    }

    async fn ask_dns(&self, sandbox_id: &str) -> Result<Found, Problem> {
        let Some(dns) = &self.dns else { return Ok(Found::Unknown) };
        let answer = tokio::time::timeout(self.push_wait, dns.addresses(sandbox_id)).await;
        let addresses = match answer {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(failed)) => return Err(not_found(sandbox_id, &failed.to_string())),
            Err(_) => return Err(not_found(sandbox_id, "the name server did not answer")),
        };
        let first = addresses.into_iter().next();
        Ok(first.map_or(Found::Unknown, |address| self.directory.place_from_dns(sandbox_id, address)))
    }
}

fn not_found(sandbox_id: &str, why: &str) -> Problem {
    Problem::new(Code::SandboxNotFound, format!("there is no sandbox {sandbox_id}: {why}"))
        .with("sandbox_id", sandbox_id)
}
