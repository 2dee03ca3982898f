//! Activity reports to the control plane: which sandboxes were in use; sent off the path of the calls, also when none
//! was.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::time::Duration;

use http::StatusCode;
use support::clock::Stopped;
use support::{Feed, Rig};

/// Interval of the reports.
const EVERY: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(500);

fn names(id: &str) -> impl Fn(&[String]) -> bool {
    move |used| used.iter().any(|used| used == id)
}

#[tokio::test]
async fn a_gateway_reports_also_when_nothing_was_used() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let reports = rig.feed().reported(<[String]>::is_empty).await;
    assert!(reports.iter().flatten().next().is_none());
}

#[tokio::test]
async fn what_was_used_is_reported_and_the_others_are_not() {
    let rig = Rig::new().sandbox("sb-1").sandbox("sb-2").start().await;
    rig.feed().reported(<[String]>::is_empty).await;
    assert_eq!(rig.run("sb-1", "echo hi").await.status, StatusCode::OK);
    let clock = Stopped::now().await;
    let (reports, waited) = clock.until(STEP, rig.feed().reported(names("sb-1"))).await;
    assert!(waited < 4 * EVERY, "{waited:?}");
    assert_eq!(rig.feed().served.connections(), 1, "a new connection would bring a report too");
    assert!(!reports.iter().flatten().any(|used| used == "sb-2"));
}

#[tokio::test]
async fn what_is_under_way_is_reported_again_and_again() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let hears = async {
        rig.sidecar("sb-1").seen(1).await;
        let clock = Stopped::now().await;
        let ((), waited) = clock.until(STEP, rig.feed().reported_times("sb-1", 2)).await;
        assert!(waited < 4 * EVERY, "{waited:?}");
        rig.feed().end("sb-1", 1, "deleted");
    };
    tokio::join!(rig.run("sb-1", "hang"), hears).0.code();
}

#[tokio::test]
async fn what_could_not_be_told_is_told_when_the_feed_is_back() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    rig.feed = None;
    rig.client.until_metric("route_feed_connected", 0.0).await;
    assert_eq!(rig.run("sb-1", "echo hi").await.status, StatusCode::OK);
    let feed = Feed::listen(&rig.folder.socket("routes"));
    feed.know("sb-1", &rig.folder.socket("sb-1"), 1);
    feed.reported(names("sb-1")).await;
}
