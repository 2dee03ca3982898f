//! The order of the fallbacks, on a paused clock: table, push, DNS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use resolve::{
    Address, Directory, Dns, Entry, Lookup, LookupFailed, PublicPorts, Resolver, Source, Tombstone, Update,
};
use tokio::time::Instant;
use wire::{Code, routes};

const PUSH_WAIT: Duration = Duration::from_secs(1);

/// A name server with these names; without any it never answers.
struct Names(HashMap<String, IpAddr>);

impl Lookup for Names {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
        Box::pin(async move {
            if self.0.is_empty() {
                std::future::pending::<()>().await;
            }
            let unknown =
                || LookupFailed { host: host.to_owned(), reason: "no such name".to_owned(), absent: true };
            self.0.get(host).map(|address| vec![*address]).ok_or_else(unknown)
        })
    }
}

fn resolver(names: Option<&[(&str, &str)]>) -> Resolver {
    let dns = names.map(|names| {
        let names = names.iter().map(|(name, ip)| ((*name).to_owned(), ip.parse().unwrap())).collect();
        Dns::new(Box::new(Names(names)), "zone", NonZeroU32::MIN)
    });
    Resolver::new(Arc::new(Directory::new()), dns, PUSH_WAIT)
}

fn push(id: &str) -> Update {
    let entry = Entry {
        sandbox_id: id.into(),
        address: Address::Unix("/a".into()),
        generation: 1,
        owner: "alice".into(),
        ports: PublicPorts::default(),
    };
    Update::Delta { routes: vec![entry], ends: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn a_pushed_route_answers_without_waiting() {
    let resolver = resolver(None);
    resolver.directory().apply(push("sb-1"));
    let start = Instant::now();
    assert_eq!(resolver.resolve("sb-1").await.unwrap().source, Source::Table);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_ended_sandbox_answers_with_its_cause() {
    let resolver = resolver(None);
    let end = Tombstone {
        sandbox_id: "sb-1".into(),
        generation: 1,
        cause: Code::NodeLost,
        detail: "".into(),
        details: BTreeMap::new(),
        at_ms: 9,
    };
    resolver.directory().apply(Update::Delta { routes: Vec::new(), ends: vec![end] });
    let problem = resolver.resolve("sb-1").await.unwrap_err();
    assert_eq!((problem.code, problem.details["ended_at_ms"].as_str()), (Code::NodeLost, "9"));
}

#[tokio::test(start_paused = true)]
async fn a_push_that_comes_in_time_is_waited_for_and_no_longer() {
    let resolver = resolver(Some(&[("sb-1.shard-0.zone", "10.0.0.1")]));
    let start = Instant::now();
    let late = async {
        tokio::time::sleep(PUSH_WAIT / 2).await;
        resolver.directory().apply(push("sb-1"));
    };
    let (route, ()) = tokio::join!(resolver.resolve("sb-1"), late);
    assert_eq!(route.unwrap().source, Source::Table);
    assert_eq!(start.elapsed(), PUSH_WAIT / 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_push_is_waited_for_whatever_the_name_server_says() {
    for names in [None, Some(&[("other.shard-0.zone", "10.0.0.1")][..]), Some(&[][..])] {
        let resolver = resolver(names);
        let late = async {
            tokio::time::sleep(PUSH_WAIT * 7).await;
            resolver.directory().apply(push("sb-1"));
        };
        let (route, ()) = tokio::join!(resolver.resolve("sb-1"), late);
        assert_eq!(route.unwrap().source, Source::Table);
    }
}

/// `sb-1` with one public port.
fn opened(port: u32) -> Update {
    let route = routes::Route {
        sandbox_id: "sb-1".to_owned(),
        address: "unix:/a".to_owned(),
        generation: 1,
        owner: "alice".to_owned(),
        ports_revision: 1,
        public_ports: vec![routes::PublicPort { port, token: "opens it".to_owned() }],
        draining_at_ms: 0,
    };
    let delta = routes::Delta { routes: vec![route], ends: Vec::new() };
    let body = Some(routes::update::Body::Delta(delta));
    Update::from_wire(routes::Update { version: 1, body, changed_at_ms: 0 }).unwrap().0
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_port_that_was_just_made_public_waits_for_the_news() {
    let resolver = resolver(None);
    resolver.directory().apply(push("sb-1"));
    let late = async {
        tokio::time::sleep(PUSH_WAIT / 2).await;
        resolver.directory().apply(opened(8000));
    };
    let (public, private, ()) =
        tokio::join!(resolver.becomes_public("sb-1", 8000), resolver.becomes_public("sb-1", 8001), late);
    assert_eq!(public.unwrap().ports.token(8000), Some("opens it"));
    assert!(private.is_none());
}

#[tokio::test(start_paused = true)]
async fn callers_without_a_token_wait_a_while_at_private_ports_and_are_few() {
    let resolver = Arc::new(resolver(None));
    let start = Instant::now();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let resolver = Arc::clone(&resolver);
        waiting.spawn(async move { (resolver.becomes_public("sb-1", 8000).await, start.elapsed()) });
    }
    let waited = waiting.join_all().await;
    assert!(waited.iter().all(|(route, _)| route.is_none()));
    let times =
        [Duration::ZERO, PUSH_WAIT].map(|time| waited.iter().filter(|(_, took)| *took == time).count());
    assert_eq!(times, [300 - 256, 256]);
}

#[tokio::test(start_paused = true)]
async fn dns_answers_when_no_push_came_and_is_remembered() {
    let resolver = resolver(Some(&[("sb-1.shard-0.zone", "10.0.0.1")]));
    let first = resolver.resolve("sb-1").await.unwrap();
    assert_eq!((first.source, first.address.to_string().as_str()), (Source::Dns, "http://10.0.0.1:7070"));
    let start = Instant::now();
    assert!(Arc::ptr_eq(&first, &resolver.resolve("sb-1").await.unwrap()));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn nobody_knows_it_is_sandbox_not_found_within_the_waits() {
    for names in [None, Some(&[("other.shard-0.zone", "10.0.0.1")][..]), Some(&[][..])] {
        let start = Instant::now();
        assert_eq!(resolver(names).resolve("sb-1").await.unwrap_err().code, Code::SandboxNotFound);
        assert!(start.elapsed() <= 16 * PUSH_WAIT);
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_no_label_never_reaches_the_name_server() {
    let resolver = resolver(Some(&[
        ("a.b.shard-0.zone", "10.0.0.1"),
        ("-a.shard-0.zone", "10.0.0.1"),
        ("A.shard-0.zone", "10.0.0.1"),
    ]));
    for id in ["a.b", "-a", "A", ""] {
        let problem = resolver.resolve(id).await.unwrap_err();
        assert!(problem.detail.contains("no DNS label"), "{}", problem.detail);
    }
}
