//! A fake egress feed: each watch gets a snapshot of what is known, then every delta; all reports are kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::{broadcast, watch};
use tonic::{Request, Response, Status};
use wire::egress::egress_server::{Egress, EgressServer};
use wire::egress::update::Body;
use wire::egress::{
    Assignment, Attempt, Delta, EgressReport, Heartbeat, Linked, Policy, ReportTaken, Snapshot, Update,
    Verdict, WatchRequest,
};

use super::serve::Served;

/// Sent after so long without a delta (egress.proto).
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The handle of a fake feed.
pub struct Feed {
    pub served: Served,
    state: Arc<State>,
}

struct State {
    known: Mutex<(BTreeMap<String, Policy>, BTreeMap<String, Assignment>)>,
    deltas: broadcast::Sender<Delta>,
    watching: watch::Sender<usize>,
    refused: watch::Sender<usize>,
    held: watch::Sender<bool>,
    reports: watch::Sender<Vec<EgressReport>>,
}

impl Feed {
    pub fn listen(path: &Path) -> Self {
        let state = Arc::new(State {
            known: Mutex::default(),
            deltas: broadcast::Sender::new(4096),
            watching: watch::Sender::default(),
            refused: watch::Sender::default(),
            held: watch::Sender::default(),
            reports: watch::Sender::default(),
        });
        Self { served: Served::grpc(path, EgressServer::new(Fake(Arc::clone(&state)))), state }
    }

    /// Adds to the next snapshot, without a delta.
    pub fn know(&self, assignment: Assignment, policies: &[Policy]) {
        let mut known = self.state.known.lock().unwrap();
        known.0.extend(policies.iter().map(|policy| (policy.digest.clone(), policy.clone())));
        known.1.insert(assignment.sandbox_id.clone(), assignment);
    }

    pub fn assign(&self, assignment: Assignment, policies: &[Policy]) {
        self.know(assignment.clone(), policies);
        self.send(Delta {
            policies: policies.to_vec(),
            assignments: vec![assignment],
            withdrawn: Vec::new(),
        });
    }

    pub fn withdraw(&self, id: &str) {
        self.state.known.lock().unwrap().1.remove(id);
        self.send(Delta { withdrawn: vec![id.to_owned()], ..Delta::default() });
    }

    pub fn send(&self, delta: Delta) {
        // Nobody may watch yet.
        drop(self.state.deltas.send(delta));
    }

    /// While held it says nothing by itself, and refuses who watches anew.
    pub fn hold(&self, held: bool) {
        self.state.held.send_replace(held);
    }

    /// Completes when so many watch.
    pub async fn watched_by(&self, count: usize) {
        self.state.watching.subscribe().wait_for(|now| *now == count).await.unwrap();
    }

    /// Completes when so many calls were refused, or more.
    pub async fn refused(&self, count: usize) {
        self.state.refused.subscribe().wait_for(|now| *now >= count).await.unwrap();
    }

    /// Completes when a revision is reported as applied; returns how many connections were cut for it.
    pub async fn applied(&self, id: &str, revision: u64) -> u32 {
        self.reported(|report| {
            report
                .applied
                .iter()
                .find(|one| one.sandbox_id == id && one.revision == revision)
                .map(|one| one.cut)
        })
        .await
    }

    /// Completes when a link is reported.
    pub async fn linked(&self, id: &str, up: bool) -> Linked {
        self.reported(|report| report.links.iter().find(|one| one.sandbox_id == id && one.up == up).cloned())
            .await
    }

    /// Completes when an attempt of a host with this verdict is reported.
    pub async fn attempt(&self, host: &str, verdict: Verdict) -> Attempt {
        self.attempt_with(|attempt| attempt.host == host && attempt.verdict == i32::from(verdict)).await
    }

    pub async fn attempt_with(&self, wanted: impl Fn(&Attempt) -> bool) -> Attempt {
        self.reported(|report| report.attempts.iter().find(|one| wanted(one)).cloned()).await
    }

    /// Completes when a report has what is wanted.
    pub async fn reported<T>(&self, wanted: impl Fn(&EgressReport) -> Option<T>) -> T {
        let mut reports = self.state.reports.subscribe();
        let all = reports.wait_for(|all| all.iter().any(|report| wanted(report).is_some())).await.unwrap();
        all.iter().find_map(wanted).unwrap()
    }

    /// All reports so far.
    pub fn reports(&self) -> Vec<EgressReport> {
        self.state.reports.borrow().clone()
    }
}

struct Fake(Arc<State>);

async fn heartbeat(state: &State) {
    tokio::time::sleep(HEARTBEAT).await;
    state.held.subscribe().wait_for(|held| !held).await.unwrap();
}

/// Counts a watch for as long as its stream lives.
struct Watching(Arc<State>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watching.send_modify(|count| *count -= 1);
    }
}

impl Fake {
    fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let expected = format!("Bearer {}", include_str!("feed.key").trim_end());
        if request.metadata().get("authorization").is_some_and(|given| given == &expected) {
            return Ok(());
        }
        self.0.refused.send_modify(|count| *count += 1);
        Err(Status::unauthenticated("the key of the feed is wrong"))
    }
}

#[tonic::async_trait]
impl Egress for Fake {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Update, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.check(&request)?;
        if *self.0.held.borrow() {
            self.0.refused.send_modify(|count| *count += 1);
            return Err(Status::unavailable("held"));
        }
        self.0.watching.send_modify(|count| *count += 1);
        let watching = Watching(Arc::clone(&self.0));
        let (deltas, snapshot) = {
            let known = self.0.known.lock().unwrap();
            let snapshot = Snapshot {
                policies: known.0.values().cloned().collect(),
                assignments: known.1.values().cloned().collect(),
            };
            (self.0.deltas.subscribe(), snapshot)
        };
        let deltas = stream::unfold((deltas, watching), |(mut deltas, watching)| async {
            let body = tokio::select! {
                delta = deltas.recv() => Body::Delta(delta.ok()?),
                () = heartbeat(&watching.0) => Body::Heartbeat(Heartbeat {}),
            };
            Some((Ok(Update { version: 2, body: Some(body) }), (deltas, watching)))
        });
        let first = Ok(Update { version: 1, body: Some(Body::Snapshot(snapshot)) });
        Ok(Response::new(Box::pin(stream::iter([first]).chain(deltas))))
    }

    async fn report(&self, report: Request<EgressReport>) -> Result<Response<ReportTaken>, Status> {
        self.check(&report)?;
        self.0.reports.send_modify(|reports| reports.push(report.into_inner()));
        Ok(Response::new(ReportTaken {}))
    }
}
