//! The table against a model: per sandbox the largest (generation, ended) wins, in whatever order updates arrive.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use resolve::{Address, Applied, Entry, PublicPorts, RouteEnd, Source, Table, Tombstone, Update};
use wire::Code;
use wire::routes::{self, PublicPort};

/// What the model knows of a sandbox: its generation and whether it has ended; the derived order is the rule (an end
/// wins within its generation).
type Known = (u64, bool);

fn entry(id: &str, generation: u64) -> Entry {
    let address = Address::Unix(format!("/{id}/{generation}").into());
    Entry { sandbox_id: id.into(), address, generation, owner: "alice".into(), ports: PublicPorts::default() }
}

fn end(id: &str, generation: u64) -> Tombstone {
    Tombstone {
        sandbox_id: id.into(),
        generation,
        cause: Code::Deleted,
        detail: "by alice".into(),
        details: BTreeMap::new(),
        at_ms: 7,
    }
}

fn route(id: &str, generation: u64) -> Update {
    Update::Delta { routes: vec![entry(id, generation)], ends: Vec::new() }
}

fn ended(id: &str, generation: u64) -> Update {
    Update::Delta { routes: Vec::new(), ends: vec![end(id, generation)] }
}

/// Public ports as the feed sends them.
fn ports(revision: u64, public: &[(u32, &str)]) -> Update {
    let public = public.iter().map(|(port, token)| PublicPort { port: *port, token: (*token).to_owned() });
    let route = routes::Route {
        sandbox_id: "sb-1".to_owned(),
        address: "unix:/sb-1/1".to_owned(),
        generation: 1,
        owner: "alice".to_owned(),
        ports_revision: revision,
        public_ports: public.collect(),
        draining_at_ms: 0,
    };
    let delta = routes::Delta { routes: vec![route], ends: Vec::new() };
    let message =
        routes::Update { version: 1, body: Some(routes::update::Body::Delta(delta)), changed_at_ms: 0 };
    Update::from_wire(message).unwrap().0
}

fn known(table: &Table, id: &str) -> Option<Known> {
    let route = table.route(id).map(|route| (route.generation, false));
    let tombstone = table.tombstone(id).map(|end| (end.generation, true));
    assert!(route.is_none() || tombstone.is_none(), "{id} is both alive and dead");
    route.or(tombstone)
}

fn events() -> impl Strategy<Value = Vec<(u8, u64, bool)>> {
    prop::collection::vec((0u8..4, 1u64..6, any::<bool>()), 0..40)
}

fn update((id, generation, is_end): (u8, u64, bool)) -> Update {
    let id = format!("sb-{id}");
    if is_end { ended(&id, generation) } else { route(&id, generation) }
}

proptest! {
    #[test]
    fn deltas_in_any_order_give_the_largest_of_each_sandbox(events in events()) {
        let mut table = Table::default();
        let mut model: BTreeMap<String, Known> = BTreeMap::new();
        for event in events {
            let before = known(&table, &format!("sb-{}", event.0));
            table.apply(update(event));
            let best = model.entry(format!("sb-{}", event.0)).or_insert((event.1, event.2));
            *best = (*best).max((event.1, event.2));
            let after = known(&table, &format!("sb-{}", event.0));
            prop_assert!(after >= before, "an older generation won");
            prop_assert_eq!(after, Some(*best));
        }
        for (id, best) in &model {
            prop_assert_eq!(known(&table, id), Some(*best));
        }
    }

    #[test]
    fn a_snapshot_leaves_exactly_what_it_names_and_what_was_newer(events in events(), named in events()) {
        let mut table = Table::default();
        for event in events {
            table.apply(update(event));
        }
        let before: BTreeMap<String, Known> =
            (0..4).map(|n| format!("sb-{n}")).filter_map(|id| Some((id.clone(), known(&table, &id)?))).collect();
        let (ends, routes): (Vec<_>, Vec<_>) = named.into_iter().partition(|event| event.2);
        let names: BTreeSet<String> = ends.iter().chain(&routes).map(|event| format!("sb-{}", event.0)).collect();
        table.apply(Update::Snapshot {
            routes: routes.iter().map(|event| entry(&format!("sb-{}", event.0), event.1)).collect(),
            ends: ends.iter().map(|event| end(&format!("sb-{}", event.0), event.1)).collect(),
        });
        for id in (0..4).map(|n| format!("sb-{n}")) {
            let in_snapshot = ends.iter().chain(&routes).filter(|event| format!("sb-{}", event.0) == id)
                .map(|event| (event.1, event.2)).max();
            let kept = before.get(&id).copied().filter(|known| names.contains(&id) || known.1);
            prop_assert_eq!(known(&table, &id), in_snapshot.max(kept));
        }
    }

    #[test]
    fn a_route_is_current_exactly_while_the_table_holds_it(events in events()) {
        let mut table = Table::default();
        let mut seen = Vec::new();
        for event in events {
            table.apply(update(event));
            seen.extend(table.route(&format!("sb-{}", event.0)).cloned());
        }
        for route in seen {
            let held = table.route(&route.sandbox_id).is_some_and(|held| std::sync::Arc::ptr_eq(held, &route));
            prop_assert_eq!(route.is_current(), held);
        }
    }
}

#[test]
fn an_end_decides_the_fate_of_the_route_and_a_second_end_changes_nothing() {
    let mut table = Table::default();
    table.apply(route("sb-1", 3));
    let held = table.route("sb-1").unwrap().clone();
    assert_eq!(table.apply(ended("sb-1", 3)).changed.len(), 1);
    let Some(RouteEnd::Ended(tombstone)) = held.end() else { panic!("{:?}", held.end()) };
    assert_eq!(tombstone.problem().detail, "sandbox sb-1 ended: by alice");
    assert_eq!(table.apply(ended("sb-1", 3)), Applied { fenced: 1, ..Applied::default() });
}

#[test]
fn a_larger_generation_replaces_the_address_and_a_snapshot_without_the_route_forgets_it() {
    let mut table = Table::default();
    table.apply(route("sb-1", 1));
    let first = table.route("sb-1").unwrap().clone();
    table.apply(route("sb-1", 2));
    assert_eq!(first.end(), Some(RouteEnd::Replaced));
    let second = table.route("sb-1").unwrap().clone();
    table.apply(Update::Snapshot { routes: Vec::new(), ends: Vec::new() });
    assert_eq!(second.end(), Some(RouteEnd::Forgotten));
    assert!(table.is_empty());
}

#[test]
fn tombstones_are_bounded_and_the_oldest_goes_first() {
    let mut table = Table::with_max_tombstones(3);
    for n in 0..10 {
        table.apply(ended(&format!("sb-{n}"), 1));
    }
    assert_eq!(table.len(), (0, 3));
    assert!(table.tombstone("sb-6").is_none() && table.tombstone("sb-7").is_some());
}

#[test]
fn a_newer_end_of_the_same_sandbox_does_not_go_with_the_older_one() {
    let mut table = Table::with_max_tombstones(2);
    for update in [ended("sb-1", 1), route("sb-1", 2), ended("sb-1", 2), ended("sb-2", 1)] {
        table.apply(update);
    }
    assert_eq!(table.len(), (0, 2));
    assert_eq!(table.tombstone("sb-1").map(|end| end.generation), Some(2));
}

#[test]
fn what_dns_said_holds_until_the_push_and_a_contradiction_is_counted() {
    let mut table = Table::default();
    let elsewhere = Address::Tcp { host: "10.0.0.9".to_owned(), port: 7070 };
    let from_dns = table.place_from_dns("sb-1", elsewhere);
    assert_eq!(table.route("sb-1").map(|route| route.source), Some(Source::Dns));
    let applied = table.apply(route("sb-1", 0));
    assert_eq!(applied.dns_disagreements, 1);
    assert_eq!(from_dns.end(), Some(RouteEnd::Replaced));
    assert_eq!(table.route("sb-1").map(|route| route.source), Some(Source::Table));
}

#[test]
fn a_push_that_says_what_dns_said_interrupts_no_call_and_its_end_reaches_all() {
    let mut table = Table::default();
    let from_dns = table.place_from_dns("sb-1", entry("sb-1", 3).address);
    assert_eq!(table.apply(route("sb-1", 3)).dns_disagreements, 0);
    let pushed = table.route("sb-1").unwrap().clone();
    assert_eq!((pushed.source, pushed.generation, &*pushed.owner), (Source::Table, 3, "alice"));
    assert!(from_dns.is_current() && from_dns.is_same(&pushed));
    table.forget_dns(&from_dns);
    assert!(pushed.is_current(), "a pushed route stays");
    table.apply(ended("sb-1", 3));
    assert!(matches!(from_dns.end(), Some(RouteEnd::Ended(_))));
}

#[test]
fn only_a_route_from_dns_can_be_forgotten() {
    let mut table = Table::default();
    let from_dns = table.place_from_dns("sb-1", Address::Unix("/a".into()));
    table.forget_dns(&from_dns);
    assert_eq!(from_dns.end(), Some(RouteEnd::Replaced));
    table.apply(route("sb-2", 1));
    let pushed = table.route("sb-2").unwrap().clone();
    table.forget_dns(&pushed);
    assert!(pushed.is_current());
}

#[test]
fn a_change_of_ports_leaves_calls_that_are_under_way_alone_and_an_older_one_changes_nothing() {
    let mut table = Table::default();
    table.apply(ports(5, &[]));
    let before = table.route("sb-1").unwrap().clone();
    for (revision, public, token) in [
        (6, vec![(80, "a")], Some("a")),
        (5, vec![], Some("a")),
        (6, vec![], Some("a")),
        (7, vec![], None),
        (6, vec![(80, "a")], None),
    ] {
        table.apply(ports(revision, &public));
        let route = table.route("sb-1").unwrap();
        assert_eq!(route.ports.token(80), token, "{revision} {public:?}");
        assert!(route.is_same(&before) && before.is_current());
    }
    table.apply(ended("sb-1", 1));
    table.apply(ports(8, &[(80, "a")]));
    assert!(table.route("sb-1").is_none() && !before.is_current());
}
