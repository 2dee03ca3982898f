//! What waits to be told to the control plane: policies that are in force, links, and what was attempted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};
use wire::egress::{Applied, Attempt, EgressReport, Linked};

/// Attempts that may wait, merged ones counted once; about 400 bytes each. Above that they are counted alone.
const MAX_ATTEMPTS: usize = 10_000;

/// Attempts of one report: far below the size at which a gRPC message is refused (4 MiB).
const ATTEMPTS_OF_ONE: usize = 2_000;

/// Attempts are merged and reported once a second.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// The reports of this replica that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: Mutex<Waiting>,
    urgent: Notify,
    /// Whether a report was taken out of what waits, and did not arrive yet.
    under_way: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    applied: Vec<Applied>,
    /// The latest of each sandbox.
    links: HashMap<String, Linked>,
    attempts: HashMap<Key, Attempt>,
    dropped: u64,
}

/// Attempts that are alike: counts and sums aside, and begun ones apart from ended ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    sandbox_id: String,
    host: String,
    port: u32,
    address: String,
    verdict: i32,
    policy: String,
    rule: String,
    protocol: String,
    ended: bool,
}

impl Key {
    fn of(attempt: &Attempt) -> Self {
        let Attempt { sandbox_id, host, port, address, verdict, policy, rule, protocol, duration_ms, .. } =
            attempt;
        Self {
            sandbox_id: sandbox_id.clone(),
            host: host.clone(),
            port: *port,
            address: address.clone(),
            verdict: *verdict,
            policy: policy.clone(),
            rule: rule.clone(),
            protocol: protocol.clone(),
            ended: *duration_ms > 0,
        }
    }
}

impl Reports {
    /// A policy is in force, and what it does not allow is closed. Somebody waits for this.
    pub(crate) fn applied(&self, applied: Applied) {
        self.lock().applied.push(applied);
        self.urgent.notify_one();
    }

    /// A link is up, or not.
    pub(crate) fn linked(&self, linked: Linked) {
        self.lock().links.insert(linked.sandbox_id.clone(), linked);
        self.urgent.notify_one();
    }

    /// One attempt, or several that are alike.
    pub(crate) fn attempt(&self, attempt: Attempt) {
        self.lock().merge(attempt);
    }

    /// Completes at once where something urgent waits, else within a second.
    pub(crate) async fn due(&self) {
        let _ = tokio::time::timeout(EVERY, self.urgent.notified()).await;
    }

    /// Completes when nothing waits any more, and the last report was taken.
    pub(crate) async fn taken(&self) {
        self.urgent.notify_one();
        let mut taken = self.under_way.subscribe();
        // The sender lives as long as `self`.
        let _ = taken.wait_for(|under_way| !under_way && self.lock().is_empty()).await;
    }

    /// Takes what waits; `None` when that is nothing.
    pub(crate) fn take(&self, egress_id: &str) -> Option<EgressReport> {
        let mut waiting = self.lock();
        let some: Vec<Key> = waiting.attempts.keys().take(ATTEMPTS_OF_ONE).cloned().collect();
        let attempts: Vec<Attempt> = some.iter().filter_map(|key| waiting.attempts.remove(key)).collect();
        let report = EgressReport {
            egress_id: egress_id.to_owned(),
            applied: std::mem::take(&mut waiting.applied),
            links: waiting.links.drain().map(|(_, linked)| linked).collect(),
            attempts,
            dropped_attempts: std::mem::take(&mut waiting.dropped),
        };
        if !waiting.attempts.is_empty() {
            self.urgent.notify_one();
        }
        let EgressReport { applied, links, attempts, dropped_attempts, .. } = &report;
        let nothing = applied.is_empty() && links.is_empty() && attempts.is_empty() && *dropped_attempts == 0;
        drop(waiting);
        if nothing {
            return None;
        }
        self.under_way.send_replace(true);
        Some(report)
    }

    /// The report that was taken out last has arrived.
    pub(crate) fn arrived(&self) {
        self.under_way.send_replace(false);
    }

    /// Puts back a report that was not taken.
    pub(crate) fn restore(&self, report: EgressReport) {
        let mut waiting = self.lock();
        waiting.applied.extend(report.applied);
        for linked in report.links {
            waiting.links.entry(linked.sandbox_id.clone()).or_insert(linked);
        }
        waiting.dropped += report.dropped_attempts;
        for attempt in report.attempts {
            waiting.merge(attempt);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.links.is_empty() && self.attempts.is_empty() && self.dropped == 0
    }

    fn merge(&mut self, attempt: Attempt) {
        let full = self.attempts.len() >= MAX_ATTEMPTS;
        match self.attempts.entry(Key::of(&attempt)) {
            Entry::Occupied(mut same) => {
                let same = same.get_mut();
                same.count = same.count.saturating_add(attempt.count);
                same.sent_bytes = same.sent_bytes.saturating_add(attempt.sent_bytes);
                same.received_bytes = same.received_bytes.saturating_add(attempt.received_bytes);
                same.duration_ms = same.duration_ms.max(attempt.duration_ms);
            }
            Entry::Vacant(_) if full => self.dropped += u64::from(attempt.count),
            Entry::Vacant(place) => drop(place.insert(attempt)),
        }
    }
}

/// The time by this machine's clock, as reports have it.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(host: &str, sent_bytes: u64, duration_ms: u64) -> Attempt {
        Attempt {
            sandbox_id: "sb-1".into(),
            host: host.into(),
            sent_bytes,
            duration_ms,
            count: 1,
            ..Attempt::default()
        }
    }

    #[test]
    fn alike_attempts_are_one_and_begun_ones_are_not_ended_ones() {
        let reports = Reports::default();
        for one in [
            attempt("a", 0, 0),
            attempt("a", 0, 0),
            attempt("a", 3, 5),
            attempt("a", 4, 2),
            attempt("b", 0, 0),
        ] {
            reports.attempt(one);
        }
        let mut attempts = reports.take("e").unwrap().attempts;
        attempts.sort_by_key(|one| (one.host.clone(), one.duration_ms));
        let told: Vec<_> = attempts
            .iter()
            .map(|one| (one.host.as_str(), one.count, one.sent_bytes, one.duration_ms))
            .collect();
        assert_eq!(told, [("a", 2, 0, 0), ("a", 2, 7, 5), ("b", 1, 0, 0)]);
        assert_eq!(reports.take("e"), None);
    }

    #[test]
    fn what_was_not_taken_is_told_again_and_the_latest_link_counts() {
        let reports = Reports::default();
        let linked = |up| Linked { sandbox_id: "sb-1".into(), up, detail: String::new() };
        reports.applied(Applied { sandbox_id: "sb-1".into(), revision: 1, cut: 0 });
        reports.linked(linked(false));
        reports.attempt(attempt("a", 1, 1));
        let lost = reports.take("e").unwrap();
        reports.linked(linked(true));
        reports.attempt(attempt("a", 1, 1));
        reports.restore(lost);
        let told = reports.take("e").unwrap();
        assert_eq!((told.applied.len(), told.links, told.attempts[0].count), (1, vec![linked(true)], 2));
    }

    #[test]
    fn more_than_may_wait_is_counted() {
        let reports = Reports::default();
        for number in 0..MAX_ATTEMPTS + 5 {
            reports.attempt(attempt(&number.to_string(), 0, 0));
        }
        reports.attempt(attempt("0", 0, 0));
        let first = reports.take("e").unwrap();
        assert_eq!((first.attempts.len(), first.dropped_attempts), (ATTEMPTS_OF_ONE, 5));
        let rest: usize = std::iter::from_fn(|| reports.take("e")).map(|report| report.attempts.len()).sum();
        assert_eq!(rest + ATTEMPTS_OF_ONE, MAX_ATTEMPTS);
    }
}
