//! A fake route feed: each watch gets a snapshot of what is known, then every delta, and heartbeats in between.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::{broadcast, watch};
use tonic::{Request, Response, Status};
use wire::routes::routes_server::{Routes, RoutesServer};
use wire::routes::{
    ActivityReport, ActivityTaken, Delta, EndOfSandbox, Heartbeat, NodeUsage, PublicPort, Route, Snapshot,
    Update, UsageRequest, WatchRequest, update::Body,
};

use super::serve::Served;

/// Sent after so long without a delta (routes.proto).
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The handle of a fake feed.
#[derive(Debug)]
pub struct Feed {
    pub served: Served,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    routes: Mutex<BTreeMap<String, Route>>,
    deltas: broadcast::Sender<Delta>,
    /// The sandboxes that each report named.
    reports: watch::Sender<Vec<Vec<String>>>,
    /// What the nodes of some sandboxes say that they have used, in microseconds.
    cpu: Mutex<BTreeMap<String, u64>>,
}

impl Feed {
    pub fn listen(path: &Path) -> Self {
        let (deltas, reports) = (broadcast::Sender::new(1024), watch::Sender::default());
        let state = Arc::new(State { routes: Mutex::default(), deltas, reports, cpu: Mutex::default() });
        Self { served: Served::grpc(path, RoutesServer::new(Fake(Arc::clone(&state)))), state }
    }

    /// Completes when a report satisfies `wanted`; returns all reports.
    pub async fn reported(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<Vec<String>> {
        let mut reports = self.state.reports.subscribe();
        let all = reports.wait_for(|reports| reports.iter().any(|used| wanted(used))).await;
        all.unwrap().clone()
    }

    /// Completes when so many reports have named a sandbox.
    pub async fn reported_times(&self, id: &str, times: usize) {
        let mut reports = self.state.reports.subscribe();
        let named = |reports: &Vec<Vec<String>>| reports.iter().flatten().filter(|used| *used == id).count();
        reports.wait_for(|reports| named(reports) >= times).await.unwrap();
    }

    /// Has a sandbox's node say what it has used.
    pub fn count(&self, id: &str, cpu_us: u64) {
        self.state.cpu.lock().unwrap().insert(id.to_owned(), cpu_us);
    }

    /// Adds a route to the next snapshot, without a delta.
    pub fn know(&self, id: &str, socket: &Path, generation: u64) -> Route {
        let route = Route {
            sandbox_id: id.to_owned(),
            address: format!("unix:{}", socket.display()),
            generation,
            owner: "alice".to_owned(),
            ..Route::default()
        };
        self.state.routes.lock().unwrap().insert(id.to_owned(), route.clone());
        route
    }

    /// Pushes a route to a TCP address.
    pub fn push_tcp(&self, id: &str, address: SocketAddr, generation: u64) {
        let route =
            Route { address: format!("http://{address}"), ..self.know(id, Path::new("/"), generation) };
        self.state.routes.lock().unwrap().insert(id.to_owned(), route.clone());
        self.state.deltas.send(Delta { routes: vec![route], ends: Vec::new() }).unwrap();
    }

    pub fn push(&self, id: &str, socket: &Path, generation: u64) {
        let routes = vec![self.know(id, socket, generation)];
        self.state.deltas.send(Delta { routes, ends: Vec::new() }).unwrap();
    }

    /// Makes ports public; each token is `port-token-PORT`.
    pub fn open_ports(&self, id: &str, ports: &[u16], revision: u64) {
        let route = {
            let mut routes = self.state.routes.lock().unwrap();
            let route = routes.get_mut(id).unwrap();
            route.ports_revision = revision;
            route.public_ports = ports
                .iter()
                .map(|port| PublicPort { port: (*port).into(), token: format!("port-token-{port}") })
                .collect();
            route.clone()
        };
        self.state.deltas.send(Delta { routes: vec![route], ends: Vec::new() }).unwrap();
    }

    /// Says when a sandbox ends since its node is drained; 0: its node is not.
    pub fn drain(&self, id: &str, draining_at_ms: i64) {
        let route = {
            let mut routes = self.state.routes.lock().unwrap();
            let route = routes.get_mut(id).unwrap();
            route.draining_at_ms = draining_at_ms;
            route.clone()
        };
        self.state.deltas.send(Delta { routes: vec![route], ends: Vec::new() }).unwrap();
    }

    pub fn end(&self, id: &str, generation: u64, cause: &str) {
        self.state.routes.lock().unwrap().remove(id);
        let end = EndOfSandbox {
            sandbox_id: id.to_owned(),
            generation,
            cause: cause.to_owned(),
            detail: format!("fake {cause}"),
            at_ms: 1234,
            ..EndOfSandbox::default()
        };
        self.state.deltas.send(Delta { routes: Vec::new(), ends: vec![end] }).unwrap();
    }
}

#[derive(Debug)]
struct Fake(Arc<State>);

#[tonic::async_trait]
impl Routes for Fake {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Update, Status>> + Send>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let deltas = self.0.deltas.subscribe();
        let routes = self.0.routes.lock().unwrap().values().cloned().collect();
        let snapshot = Update {
            version: 1,
            body: Some(Body::Snapshot(Snapshot { routes, ..Snapshot::default() })),
            changed_at_ms: 0,
        };
        let deltas = stream::unfold(deltas, |mut deltas| async {
            let body = tokio::select! {
                delta = deltas.recv() => Body::Delta(delta.ok()?),
                () = tokio::time::sleep(HEARTBEAT) => Body::Heartbeat(Heartbeat {}),
            };
            Some((Ok(Update { version: 2, body: Some(body), changed_at_ms: 0 }), deltas))
        });
        Ok(Response::new(Box::pin(stream::iter([Ok(snapshot)]).chain(deltas))))
    }

    async fn report(&self, report: Request<ActivityReport>) -> Result<Response<ActivityTaken>, Status> {
        let used = report.into_inner().used.into_iter().map(|used| used.sandbox_id).collect();
        self.0.reports.send_modify(|reports| reports.push(used));
        Ok(Response::new(ActivityTaken {}))
    }

    async fn usage(&self, asked: Request<UsageRequest>) -> Result<Response<NodeUsage>, Status> {
        let cpu_us = self.0.cpu.lock().unwrap().get(&asked.into_inner().sandbox_id).copied();
        Ok(Response::new(NodeUsage { cpu_us }))
    }
}
