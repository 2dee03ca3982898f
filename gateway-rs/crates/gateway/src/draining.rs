//! Which sandboxes end soon, since their node is drained: their callers hear of it with their answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use axum::response::Response;
use http::{HeaderName, HeaderValue};
use wire::routes::update::Body;
use wire::routes::{Route, Update};

/// When the sandbox ends at the latest (Unix ms).
pub(crate) const HEADER: HeaderName = HeaderName::from_static("rollbox-draining-at-ms");

/// The sandboxes that end soon, and when.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// Whether there are any: where no node is drained, no answer takes the lock.
    some: AtomicBool,
    at_ms: RwLock<HashMap<String, i64>>,
}

impl Draining {
    /// Takes in a message of the route feed.
    pub(crate) fn take(&self, message: &Update) {
        let (routes, ends, whole) = match &message.body {
            Some(Body::Snapshot(snapshot)) => (&snapshot.routes, &snapshot.ends, true),
            Some(Body::Delta(delta)) => (&delta.routes, &delta.ends, false),
            Some(Body::Heartbeat(_)) | None => return,
        };
        if !self.some.load(Ordering::Acquire) && routes.iter().all(|route| route.draining_at_ms == 0) {
            return;
        }
        let mut at_ms = self.at_ms.write().unwrap_or_else(PoisonError::into_inner);
        if whole {
            at_ms.clear();
        }
        for route in routes {
            note(&mut at_ms, route);
        }
        for end in ends {
            at_ms.remove(&end.sandbox_id);
        }
        self.some.store(!at_ms.is_empty(), Ordering::Release);
    }

    /// Says in an answer when its sandbox ends, if that is soon.
    pub(crate) fn tell(&self, sandbox_id: &str, answer: &mut Response) {
        if !self.some.load(Ordering::Acquire) {
            return;
        }
        let known = self.at_ms.read().unwrap_or_else(PoisonError::into_inner).get(sandbox_id).copied();
        if let Some(at_ms) = known {
            answer.headers_mut().insert(HEADER, HeaderValue::from(at_ms));
        }
    }
}

fn note(at_ms: &mut HashMap<String, i64>, route: &Route) {
    if route.draining_at_ms == 0 {
        at_ms.remove(&route.sandbox_id);
    } else {
        at_ms.insert(route.sandbox_id.clone(), route.draining_at_ms);
    }
}

#[cfg(test)]
mod tests {
    use wire::routes::{Delta, EndOfSandbox, Snapshot};

    use super::*;

    fn route(id: &str, draining_at_ms: i64) -> Route {
        Route { sandbox_id: id.to_owned(), draining_at_ms, ..Route::default() }
    }

    fn delta(routes: Vec<Route>, ended: &[&str]) -> Update {
        let end = |id: &&str| EndOfSandbox { sandbox_id: (*id).to_owned(), ..EndOfSandbox::default() };
        let ends = ended.iter().map(end).collect();
        Update { body: Some(Body::Delta(Delta { routes, ends })), ..Update::default() }
    }

    fn snapshot(routes: Vec<Route>) -> Update {
        Update { body: Some(Body::Snapshot(Snapshot { routes, ..Snapshot::default() })), ..Update::default() }
    }

    fn told(draining: &Draining, id: &str) -> Option<String> {
        let mut answer = Response::default();
        draining.tell(id, &mut answer);
        answer.headers().get(HEADER).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn it_is_told_until_it_is_taken_back_or_over() {
        let draining = Draining::default();
        assert_eq!(told(&draining, "a"), None);
        draining.take(&delta(vec![route("a", 7), route("b", 8), route("c", 0)], &[]));
        assert_eq!(told(&draining, "a").as_deref(), Some("7"));
        assert_eq!(told(&draining, "c"), None);
        draining.take(&delta(vec![route("a", 9)], &["b"]));
        assert_eq!(told(&draining, "a").as_deref(), Some("9"));
        assert_eq!(told(&draining, "b"), None);
        draining.take(&delta(vec![route("a", 0)], &[]));
        assert_eq!(told(&draining, "a"), None);
        assert!(!draining.some.load(Ordering::Relaxed));
    }

    #[test]
    fn a_snapshot_is_all_there_is() {
        let draining = Draining::default();
        draining.take(&snapshot(vec![route("a", 7)]));
        draining.take(&snapshot(vec![route("b", 8), route("c", 0)]));
        assert_eq!(told(&draining, "a"), None);
        assert_eq!(told(&draining, "b").as_deref(), Some("8"));
        draining.take(&Update::default());
        assert_eq!(told(&draining, "b").as_deref(), Some("8"));
    }
}
