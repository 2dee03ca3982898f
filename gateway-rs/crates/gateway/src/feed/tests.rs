use std::sync::Arc;

use futures_util::stream;
use resolve::Found;

use super::*;

struct Rig {
    directory: Arc<Directory>,
    metrics: Metrics,
    state: FeedState,
    nodes: NodeUsage,
}

impl Rig {
    fn new() -> Self {
        Self {
            directory: Arc::new(Directory::new()),
            metrics: Metrics::new(),
            state: FeedState::default(),
            nodes: NodeUsage::default(),
        }
    }

    fn sink(&self) -> Sink<'_> {
        Sink {
            directory: &self.directory,
            metrics: &self.metrics,
            state: &self.state,
            nodes: &self.nodes,
            checks: None,
        }
    }
}

fn message(body: Body) -> Result<routes::Update, Status> {
    Ok(routes::Update { version: 1, body: Some(body), changed_at_ms: 0 })
}

fn snapshot(ids: &[&str]) -> Result<routes::Update, Status> {
    let route = |id: &&str| routes::Route {
        sandbox_id: (*id).to_owned(),
        address: "unix:/a".to_owned(),
        generation: 1,
        owner: "alice".to_owned(),
        ..routes::Route::default()
    };
    message(Body::Snapshot(routes::Snapshot {
        routes: ids.iter().map(route).collect(),
        ..routes::Snapshot::default()
    }))
}

fn heartbeat() -> Result<routes::Update, Status> {
    message(Body::Heartbeat(routes::Heartbeat {}))
}

#[tokio::test(start_paused = true)]
async fn a_silent_feed_is_lost_after_three_heartbeats_and_one_that_beats_is_not() {
    let rig = Rig::new();
    let beats = stream::unfold(0, |n| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        (n < 10).then_some((heartbeat(), n + 1))
    });
    let start = Instant::now();
    let lost = consume(beats.chain(stream::pending()), &rig.sink()).await;
    assert!(matches!(lost, Lost::Silent));
    // Ten beats, the pause in which the eleventh was due, then the silence: counted from the last beat.
    assert_eq!(start.elapsed(), Duration::from_secs(50) + SILENCE);
}

#[tokio::test(start_paused = true)]
async fn only_a_snapshot_makes_ready_and_the_table_outlives_the_feed() {
    let rig = Rig::new();
    consume(stream::iter([heartbeat()]), &rig.sink()).await;
    assert!(!rig.state.has_snapshot());
    let lost = consume(stream::iter([snapshot(&["sb-1"])]), &rig.sink()).await;
    assert!(matches!(lost, Lost::Closed) && rig.state.has_snapshot());
    assert!(matches!(rig.directory.find("sb-1"), Found::Live(_)));
    assert!(rig.state.silence().is_some());
    rig.state.lost();
    tokio::time::advance(Duration::from_secs(7)).await;
    assert!(rig.state.silence().is_none() && rig.state.has_snapshot());
    assert_eq!(rig.state.age(), Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_refused_feed_says_why() {
    let rig = Rig::new();
    let lost = consume(stream::iter([Err(Status::unavailable("starting"))]), &rig.sink()).await;
    assert!(lost.to_string().ends_with("starting"), "{lost}");
}

#[test]
fn a_reconnect_waits_for_half_of_the_backoff_at_least() {
    assert!((0..1000).all(|_| (0.5..=1.0).contains(&jitter())));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_several_messages_counts_as_a_whole() {
    let rig = Rig::new();
    let part = |ids: &[&str]| {
        let mut part = snapshot(ids).unwrap();
        if let Some(Body::Snapshot(part)) = &mut part.body {
            part.more = true;
        }
        Ok(part)
    };
    consume(stream::iter([part(&["sb-1"]), heartbeat()]), &rig.sink()).await;
    assert!(!rig.state.has_snapshot(), "a part of one is none");
    let messages = [part(&["sb-1"]), heartbeat(), part(&["sb-2"]), snapshot(&["sb-3"])];
    consume(stream::iter(messages), &rig.sink()).await;
    assert!(rig.state.has_snapshot());
    for id in ["sb-1", "sb-2", "sb-3"] {
        assert!(matches!(rig.directory.find(id), Found::Live(_)), "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_route_outlives_the_snapshot_of_a_replica_that_lags_but_not_for_long() {
    let rig = Rig::new();
    consume(stream::iter([snapshot(&["sb-1", "sb-2"])]), &rig.sink()).await;
    let late = stream::once(async {
        tokio::time::sleep(CONFIRMATION_WAIT / 2).await;
        let Ok(routes::Update { body: Some(Body::Snapshot(all)), .. }) = snapshot(&["sb-2"]) else {
            panic!()
        };
        message(Body::Delta(routes::Delta { routes: all.routes, ends: Vec::new() }))
    });
    let beats = stream::unfold((), |()| async {
        tokio::time::sleep(CONFIRMATION_WAIT).await;
        Some((heartbeat(), ()))
    });
    let messages = stream::iter([snapshot(&[])]).chain(late).chain(beats);
    let alive = |id| matches!(rig.directory.find(id), Found::Live(_));
    let sink = rig.sink();
    let mut feed = Box::pin(consume(messages, &sink));
    assert!(tokio::time::timeout(CONFIRMATION_WAIT - Duration::from_secs(1), &mut feed).await.is_err());
    assert!(alive("sb-1") && alive("sb-2"));
    assert!(tokio::time::timeout(Duration::from_secs(2), &mut feed).await.is_err());
    assert!(!alive("sb-1") && alive("sb-2"));
}
