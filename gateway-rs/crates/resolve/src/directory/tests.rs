use std::collections::BTreeMap;

use tokio::task::yield_now;

use super::*;
use crate::{Entry, PublicPorts, Tombstone};

fn delta(id: &str, generation: u64) -> Update {
    let address = Address::Unix(format!("/{id}").into());
    let entry = Entry {
        sandbox_id: id.into(),
        address,
        generation,
        owner: "alice".into(),
        ports: PublicPorts::default(),
    };
    Update::Delta { routes: vec![entry], ends: Vec::new() }
}

fn end(id: &str, generation: u64) -> Update {
    let end = Tombstone {
        sandbox_id: id.into(),
        generation,
        cause: wire::Code::Deleted,
        detail: String::new(),
        details: BTreeMap::new(),
        at_ms: 0,
    };
    Update::Delta { routes: Vec::new(), ends: vec![end] }
}

fn awaited(directory: &Directory) -> usize {
    directory.read().awaited.len()
}

#[tokio::test]
async fn everybody_who_waits_for_an_id_gets_its_route_and_leaves_nothing_behind() {
    let directory = Arc::new(Directory::new());
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let directory = Arc::clone(&directory);
        waiting.spawn(async move { directory.appears("sb-1").await });
    }
    while Arc::strong_count(&directory) < 11 || awaited(&directory) == 0 {
        yield_now().await;
    }
    directory.apply(delta("sb-1", 1));
    for found in waiting.join_all().await {
        assert!(matches!(found, Found::Live(route) if route.generation == 1));
    }
    assert_eq!(awaited(&directory), 0);
}

#[tokio::test]
async fn an_end_wakes_too() {
    let directory = Directory::new();
    let push = async {
        yield_now().await;
        directory.apply(end("sb-1", 1));
    };
    let (found, ()) = tokio::join!(directory.appears("sb-1"), push);
    assert!(matches!(found, Found::Ended(_)));
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_nothing_behind_and_wakes_nobody() {
    let directory = Directory::new();
    for _ in 0..3 {
        let (mut first, mut second) =
            (Box::pin(directory.appears("sb-1")), Box::pin(directory.appears("sb-1")));
        assert!(futures_poll(&mut first).await && futures_poll(&mut second).await);
        drop(first);
        assert_eq!(awaited(&directory), 1, "the second still waits");
        drop(second);
        assert_eq!(awaited(&directory), 0);
    }
}

#[tokio::test]
async fn awaited_ids_are_bounded() {
    let directory = Directory::new();
    let ids: Vec<String> = (0..MAX_AWAITED_IDS).map(|n| format!("sb-{n}")).collect();
    let mut waiting: Vec<_> = ids.iter().map(|id| Box::pin(directory.appears(id))).collect();
    for call in &mut waiting {
        assert!(futures_poll(call).await);
    }
    assert!(matches!(directory.appears("one-more").await, Found::Unknown));
}

/// Polls once; returns whether the call still waits.
async fn futures_poll<F: Future + Unpin>(call: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *call).poll(cx).is_pending()))
        .await
}

#[test]
fn a_snapshot_of_many_parts_is_taken_in_whole() {
    let (directory, mut table) = (Directory::new(), Table::default());
    let entry = |n: usize| Entry {
        sandbox_id: format!("sb-{n}").into(),
        address: Address::Unix(format!("/{n}").into()),
        generation: 1,
        owner: "alice".into(),
        ports: PublicPorts::default(),
    };
    let end = |n: usize| {
        let cause = wire::Code::Deleted;
        Tombstone {
            sandbox_id: format!("sb-{n}").into(),
            generation: 1,
            cause,
            detail: String::new(),
            details: BTreeMap::new(),
            at_ms: 0,
        }
    };
    let snapshot = |routes: std::ops::Range<usize>, ends: std::ops::Range<usize>| Update::Snapshot {
        routes: routes.map(entry).collect(),
        ends: ends.map(end).collect(),
    };
    for update in [snapshot(0..3 * PART + 1, 0..0), snapshot(2 * PART + 1..5 * PART, 2 * PART..4 * PART)] {
        let (by_parts, whole) = (directory.apply(update.clone()), table.apply(update));
        directory.forget_unconfirmed();
        assert_eq!(by_parts.dns_disagreements, whole.dns_disagreements);
        assert!((0..5 * PART).all(|n| {
            let id = format!("sb-{n}");
            match directory.find(&id) {
                Found::Live(route) => table.route(&id).is_some_and(|held| held.address == route.address),
                Found::Ended(end) => table.tombstone(&id) == Some(&end),
                Found::Unknown => table.route(&id).is_none() && table.tombstone(&id).is_none(),
            }
        }));
    }
    assert_eq!(directory.len(), (PART, 2 * PART));
}

fn snapshot(ids: &[&str]) -> Update {
    let routes = ids.iter().flat_map(|id| match delta(id, 1) {
        Update::Delta { routes, .. } | Update::Snapshot { routes, .. } => routes,
    });
    Update::Snapshot { routes: routes.collect(), ends: Vec::new() }
}

fn is_live(directory: &Directory, id: &str) -> bool {
    matches!(directory.find(id), Found::Live(route) if route.is_current())
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_lags_behind_forgets_no_fresh_route_unless_nobody_names_it_in_time() {
    let directory = Directory::new();
    directory.apply(delta("sb-old", 1));
    tokio::time::advance(FRESH * 2).await;
    for id in ["sb-confirmed", "sb-ended", "sb-gone"] {
        directory.apply(delta(id, 1));
    }
    directory.apply(snapshot(&["sb-other"]));
    assert!(!is_live(&directory, "sb-old"), "it is not fresh");
    assert!(["sb-confirmed", "sb-ended", "sb-gone", "sb-other"].iter().all(|id| is_live(&directory, id)));
    directory.apply(delta("sb-confirmed", 1));
    directory.apply(end("sb-ended", 1));
    directory.forget_unconfirmed();
    assert!(is_live(&directory, "sb-confirmed") && is_live(&directory, "sb-other"));
    assert!(!is_live(&directory, "sb-gone"));
    assert!(matches!(directory.find("sb-ended"), Found::Ended(_)));
    directory.forget_unconfirmed();
    assert!(is_live(&directory, "sb-confirmed"));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_lags_behind_brings_no_ended_sandbox_back() {
    let directory = Directory::new();
    directory.apply(delta("sb-1", 1));
    directory.apply(end("sb-1", 1));
    assert_eq!(directory.apply(snapshot(&["sb-1"])).fenced, 1);
    directory.apply(delta("sb-1", 1));
    assert!(matches!(directory.find("sb-1"), Found::Ended(_)));
}
