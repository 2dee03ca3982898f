use std::sync::Arc;

use axum::extract::Request;
use http::header::HOST;
use tokio_util::task::TaskTracker;
use wire::Problem;

use crate::admission::Admission;
use crate::call::Calls;
use crate::ports::place::Place;

/// What connections to ports share.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    pub(super) calls: Arc<Calls>,
    pub(super) gate: Arc<Admission>,
    /// One task per connection; they end by themselves when the drain expires.
    pub(super) tunnels: TaskTracker,
    /// The domain below which ports have host names.
    pub(super) domain: Option<Arc<str>>,
}

impl Ports {
    /// Connections that take their permits from `gate` and run in `tunnels`.
    pub(crate) fn new(
        calls: Arc<Calls>,
        gate: Arc<Admission>,
        tunnels: TaskTracker,
        domain: Option<Arc<str>>,
    ) -> Self {
        Self { calls, gate, tunnels, domain }
    }

    /// The port that a request means by its host name; `None` for a request to another host.
    ///
    /// # Errors
    /// `invalid_argument`: below the domain, but the name of no port.
    pub(super) fn named(&self, request: &Request) -> Result<Option<Place>, Problem> {
        let Some(domain) = &self.domain else { return Ok(None) };
        let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let host = named.or(request.uri().authority().map(|authority| authority.as_str()));
        Place::of_host(host.unwrap_or_default(), request.uri().path(), domain)
    }

    /// The sandbox to whose own server a request goes by its host name (empty: below the domain, but the name of no
    /// port); `None` for a request to another host.
    pub(crate) fn sandbox_named(&self, request: &Request) -> Option<String> {
        self.named(request).map_or_else(|_| Some(String::new()), |place| place.map(|place| place.sandbox_id))
    }
}
