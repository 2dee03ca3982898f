//! Probes and metrics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::{Rig, denies};

#[tokio::test]
async fn probes_and_metrics_say_what_is() {
    let rig = Rig::start().await;
    let relay = rig.sandbox("sb-1", &denies(&["evil.test"])).await;
    relay.connect("evil.test:443").await;
    assert!(rig.get("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(rig.get("/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(rig.get("/other").await.starts_with("HTTP/1.1 404"));
    let metrics = rig.get("/metrics").await;
    for line in [
        "application/openmetrics-text",
        "rollbox_egress_attempts_total{verdict=\"denied_name\",protocol=\"connect\"} 1",
        "rollbox_egress_links 1",
        "rollbox_egress_sandboxes 1",
        "rollbox_egress_feed_connected 1",
        "rollbox_egress_link_opens_total{outcome=\"connected\"} 1",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn it_is_not_ready_without_its_feed() {
    let mut rig = Rig::start().await;
    rig.feed.watched_by(1).await;
    drop(std::mem::replace(&mut rig.feed, support::Feed::listen(&rig.folder.socket("nobody"))));
    while !rig.get("/readyz").await.starts_with("HTTP/1.1 503") {
        tokio::task::yield_now().await;
    }
    assert!(rig.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn with_another_key_it_gets_no_feed_and_asks_again() {
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/other.key");
    let rig = Rig::with(&[("FEED_KEY_FILE", other)]).await;
    rig.feed.refused(3).await;
    assert!(rig.get("/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(rig.get("/metrics").await.contains("rollbox_egress_feed_connected 0"));
}
