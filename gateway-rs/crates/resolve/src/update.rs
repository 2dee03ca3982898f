use std::sync::Arc;

use wire::{Code, routes};

use crate::{Address, PublicPorts, Tombstone};

/// One message of the feed that is about routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// All routes and tombstones.
    Snapshot {
        /// Every live sandbox.
        routes: Vec<Entry>,
        /// Every end still on record.
        ends: Vec<End>,
    },
    /// What changed.
    Delta {
        /// New or changed.
        routes: Vec<Entry>,
        /// Ended.
        ends: Vec<End>,
    },
}

/// A route as pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The sandbox.
    pub sandbox_id: Arc<str>,
    /// Where its sidecar listens.
    pub address: Address,
    /// The larger generation wins.
    pub generation: u64,
    /// The owner of the sandbox.
    pub owner: Arc<str>,
    /// The ports that are reachable without a token.
    pub ports: PublicPorts,
}

/// An end as pushed.
pub type End = Tombstone;

impl Update {
    /// Converts one feed message; also returns the ids of routes whose address cannot be parsed (they are left out).
    /// `None` for a heartbeat or a body that this version does not know.
    pub fn from_wire(message: routes::Update) -> Option<(Self, Vec<String>)> {
        let mut unreadable = Vec::new();
        let update = match message.body? {
            routes::update::Body::Snapshot(snapshot) => Self::Snapshot {
                routes: entries(snapshot.routes, &mut unreadable),
                ends: snapshot.ends.into_iter().map(end).collect(),
            },
            routes::update::Body::Delta(delta) => Self::Delta {
                routes: entries(delta.routes, &mut unreadable),
                ends: delta.ends.into_iter().map(end).collect(),
            },
            routes::update::Body::Heartbeat(_) => return None,
        };
        Some((update, unreadable))
    }
}

fn entries(routes: Vec<routes::Route>, unreadable: &mut Vec<String>) -> Vec<Entry> {
    let entry = |route: routes::Route| match route.address.parse() {
        Ok(address) => Some(Entry {
            sandbox_id: route.sandbox_id.into(),
            address,
            generation: route.generation,
            owner: route.owner.into(),
            ports: PublicPorts::from_wire(route.ports_revision, route.public_ports),
        }),
        Err(_) => {
            unreadable.push(route.sandbox_id);
            None
        }
    };
    routes.into_iter().filter_map(entry).collect()
}

/// A cause that this version does not know is still an end: the sandbox has gone, and `sandbox_lost` puts the fault on
/// no caller.
fn end(end: routes::EndOfSandbox) -> End {
    let known = Code::from_name(&end.cause);
    let detail = match known {
        Some(_) => end.detail,
        None => format!("{} (cause {})", end.detail, end.cause),
    };
    Tombstone {
        sandbox_id: end.sandbox_id.into(),
        generation: end.generation,
        cause: known.unwrap_or(Code::SandboxLost),
        detail,
        details: end.details.into_iter().collect(),
        at_ms: end.at_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: routes::update::Body) -> routes::Update {
        routes::Update { version: 1, body: Some(body), changed_at_ms: 0 }
    }

    #[test]
    fn heartbeats_and_unknown_bodies_say_nothing_about_routes() {
        let heartbeat = message(routes::update::Body::Heartbeat(routes::Heartbeat {}));
        assert_eq!(Update::from_wire(heartbeat), None);
        assert_eq!(Update::from_wire(routes::Update { version: 1, body: None, changed_at_ms: 0 }), None);
    }

    #[test]
    fn a_route_with_an_unreadable_address_is_left_out_by_name() {
        let route = |id: &str, address: &str| routes::Route {
            sandbox_id: id.to_owned(),
            address: address.to_owned(),
            generation: 1,
            owner: "alice".to_owned(),
            ..routes::Route::default()
        };
        let routes = vec![route("sb-1", "unix:/a"), route("sb-2", "ftp://x")];
        let delta = message(routes::update::Body::Delta(routes::Delta { routes, ends: Vec::new() }));
        let (update, unreadable) = Update::from_wire(delta).unwrap();
        assert!(
            matches!(update, Update::Delta { routes, .. } if routes.len() == 1 && &*routes[0].sandbox_id == "sb-1")
        );
        assert_eq!(unreadable, ["sb-2"]);
    }

    #[test]
    fn a_cause_of_the_future_is_sandbox_lost_and_named() {
        let ended = end(routes::EndOfSandbox {
            sandbox_id: "sb-1".to_owned(),
            generation: 1,
            cause: "melted".to_owned(),
            detail: "node on fire".to_owned(),
            at_ms: 5,
            ..routes::EndOfSandbox::default()
        });
        assert_eq!(ended.cause, Code::SandboxLost);
        assert_eq!(ended.detail, "node on fire (cause melted)");
    }

    #[test]
    fn calls_to_an_ended_sandbox_get_the_reason_of_its_end_with_its_hint() {
        let details =
            [("reason".to_owned(), "user_not_found".to_owned()), ("user".to_owned(), "eve".to_owned())];
        let problem = end(routes::EndOfSandbox {
            sandbox_id: "sb-1".to_owned(),
            cause: "invalid_argument".to_owned(),
            detail: "no user eve".to_owned(),
            details: details.into(),
            at_ms: 5,
            ..routes::EndOfSandbox::default()
        })
        .problem();
        let said: Vec<_> = problem.details.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(said, ["ended_at_ms=5", "reason=user_not_found", "sandbox_id=sb-1", "user=eve"]);
        assert_eq!(
            problem.hint(),
            "Name a user or a group that is in the image, or its number, which need not be there."
        );
    }
}
