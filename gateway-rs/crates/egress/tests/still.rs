//! A replica that has stood still, or hears nothing: other replicas may have its sandboxes, and it must not take them back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use std::time::Duration;

use support::clock::Stopped;
use support::{Relay, Rig, denies};
use wire::egress::Delta;

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);

fn asked(relay: &Relay) -> usize {
    relay.calls.came.lock().unwrap().len()
}

#[tokio::test]
async fn a_replica_that_stood_still_opens_no_link_before_its_feed_is_there_again() {
    let rig = Rig::start().await;
    let mut relay = rig.sandbox("sb-1", &denies(&[])).await;
    let clock = Stopped::now().await;
    clock.settle().await;
    rig.feed.hold(true);
    relay.lose_link().await;
    // Was on its way when it stopped, and says nothing of what is now.
    rig.feed.send(Delta::default());
    tokio::time::advance(14 * SECOND).await;
    clock.until(STEP, rig.feed.refused(3)).await;
    assert_eq!(asked(&relay), 1);
    rig.feed.hold(false);
    clock.until(STEP, relay.linked()).await;
    assert_eq!(asked(&relay), 2);
}

#[tokio::test]
async fn while_the_feed_says_nothing_no_link_is_opened() {
    let rig = Rig::start().await;
    let mut relay = rig.sandbox("sb-1", &denies(&[])).await;
    let clock = Stopped::now().await;
    rig.feed.hold(true);
    for _ in 0..7 {
        clock.pass(SECOND).await;
    }
    relay.lose_link().await;
    clock.until(STEP, rig.feed.linked("sb-1", false)).await;
    clock.pass(SECOND).await;
    assert_eq!(asked(&relay), 1);
    rig.feed.send(Delta::default());
    clock.until(STEP, relay.linked()).await;
    assert_eq!(asked(&relay), 2);
}

#[tokio::test]
async fn a_link_that_is_under_way_when_the_feed_falls_silent_is_given_up() {
    let rig = Rig::start().await;
    let mut relay = rig.sandbox("sb-1", &denies(&[])).await;
    let clock = Stopped::now().await;
    rig.feed.hold(true);
    relay.calls.holds.send_replace(true);
    for _ in 0..5 {
        clock.pass(SECOND).await;
    }
    relay.lose_link().await;
    let opens = async {
        while asked(&relay) < 2 {
            tokio::task::yield_now().await;
        }
    };
    clock.until(Duration::from_millis(10), opens).await;
    clock.pass(2 * SECOND).await;
    relay.calls.holds.send_replace(false);
    clock.pass(SECOND).await;
    assert!(relay.has_no_leg());
    rig.feed.send(Delta::default());
    clock.until(STEP, relay.linked()).await;
}
