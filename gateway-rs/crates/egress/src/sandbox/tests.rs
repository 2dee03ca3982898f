use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::{self, Mode, Rule, Verdict};

use super::*;
use crate::policy::{Host, Policy, Target};

fn policy(mode: Mode, allow: &[&str], deny: &[&str], limits: egress::Limits) -> Arc<Policy> {
    let rule = |host: &&str| Rule { id: (*host).into(), host: (*host).into(), ..Rule::default() };
    let list = |hosts: &[&str]| hosts.iter().map(rule).collect();
    let read = Policy::read(&egress::Policy {
        mode: mode.into(),
        allow: list(allow),
        deny: list(deny),
        limits: Some(limits),
        ..egress::Policy::default()
    });
    Arc::new(read.unwrap())
}

const IDLE: Duration = Duration::from_secs(30);

fn sandbox(policy: Arc<Policy>) -> Arc<Sandbox> {
    sandbox_of(Arc::default(), policy)
}

fn sandbox_of(owner: Arc<Owner>, policy: Arc<Policy>) -> Arc<Sandbox> {
    let common = Arc::new(Common { max_connections: 3, idle: IDLE, ..Common::default() });
    let place = Place { address: "unix:/a.sock".parse().unwrap(), generation: 1, token: String::new() };
    Sandbox::new("sb-1".into(), common, place, owner, (1, policy))
}

fn admit(sandbox: &Arc<Sandbox>, target: &str) -> Result<Passage, crate::policy::Refusal> {
    let target = Target::parse(target, None).unwrap();
    Passage::admit(sandbox, target, "8.8.8.8".parse().unwrap(), Protocol::Connect)
}

fn rules(allow: &[&str]) -> Arc<Policy> {
    policy(Mode::Rules, allow, &[], egress::Limits::default())
}

#[tokio::test]
async fn a_switch_cuts_what_it_does_not_allow_and_an_old_one_is_ignored() {
    let sandbox = sandbox(rules(&["a.test", "b.test"]));
    let (a, b) = (admit(&sandbox, "a.test:443").unwrap(), admit(&sandbox, "b.test:443").unwrap());
    let cut = sandbox.switch(2, rules(&["b.test"])).unwrap();
    assert!(a.is_cut() && !b.is_cut());
    assert_eq!(admit(&sandbox, "a.test:443").unwrap_err().verdict, Verdict::DeniedName);
    let mut closed = std::pin::pin!(cut.closed());
    assert!(futures_util::future::poll_immediate(&mut closed).await.is_none());
    drop(a);
    assert_eq!(closed.await, 1);
    assert!(sandbox.switch(1, rules(&["a.test"])).is_none());
    let told = sandbox.common().reports.take("e").unwrap().attempts;
    let ends: Vec<_> =
        told.iter().filter(|one| one.duration_ms > 0).map(|one| (one.host.as_str(), one.verdict())).collect();
    assert_eq!(ends, [("a.test", Verdict::Cut)]);
}

#[tokio::test]
async fn a_connection_whose_tls_nobody_looked_at_is_cut_where_names_count() {
    let open = policy(Mode::Open, &[], &[], egress::Limits::default());
    let deny = policy(Mode::Open, &[], &["evil.test"], egress::Limits::default());
    let sandbox = sandbox(open);
    let unseen = admit(&sandbox, "a.test:443").unwrap();
    assert!(!sandbox.switch(2, Arc::clone(&deny)).unwrap().is_empty() && unseen.is_cut());
    drop(unseen);
    let seen = admit(&sandbox, "8.8.8.8:443").unwrap();
    seen.named(Some(&Host::parse("b.test").unwrap())).unwrap();
    let both = policy(Mode::Open, &[], &["evil.test", "b.test"], egress::Limits::default());
    assert!(sandbox.switch(3, deny).unwrap().is_empty() && !seen.is_cut());
    assert!(!sandbox.switch(4, both).unwrap().is_empty() && seen.is_cut());
}

#[tokio::test]
async fn limits_are_of_the_policy_the_owner_and_the_replica() {
    let limits = |connections, owner_connections| egress::Limits {
        connections,
        owner_connections,
        ..egress::Limits::default()
    };
    let named =
        |sandbox: &Arc<Sandbox>| ConnectionPermit::take(sandbox).map_err(|refusal| refusal.rule.to_string());
    let one = sandbox(policy(Mode::Open, &[], &[], limits(1, 0)));
    let permit = named(&one).unwrap();
    assert_eq!(named(&one).unwrap_err(), "limits/connections");
    drop(permit);
    assert!(named(&one).is_ok());
    let two = sandbox(policy(Mode::Open, &[], &[], limits(0, 2)));
    let permits = (named(&two).unwrap(), named(&two).unwrap());
    assert_eq!(named(&two).unwrap_err(), "limits/owner_connections");
    drop(permits);
    let all = sandbox(policy(Mode::Open, &[], &[], limits(0, 0)));
    let permits: Vec<ConnectionPermit> = (0..3).map(|_| named(&all).unwrap()).collect();
    assert_eq!(named(&all).unwrap_err(), "limits/replica");
    drop(permits);
    let rate = egress::Limits { connections_per_second: 2, ..egress::Limits::default() };
    let slow = sandbox(policy(Mode::Open, &[], &[], rate));
    assert!(named(&slow).is_ok() && named(&slow).is_ok());
    assert_eq!(named(&slow).unwrap_err(), "limits/connections_per_second");
}

#[tokio::test(start_paused = true)]
async fn bytes_are_slowed_down_and_end() {
    let limits = egress::Limits { bytes_per_second: 1000, total_bytes: 5000, ..egress::Limits::default() };
    let sandbox = sandbox(policy(Mode::Open, &[], &[], limits));
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let passage = Arc::new(admit(&sandbox, "8.8.8.8:80").unwrap());
    let mut watched = crate::limited_stream::LimitedStream::new(ours, passage);
    let began = tokio::time::Instant::now();
    for _ in 0..4 {
        watched.write_all(&[0; 1000]).await.unwrap();
    }
    theirs.write_all(&[0; 500]).await.unwrap();
    watched.read_exact(&mut [0; 500]).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3);
    assert!(watched.write_all(&[0; 501]).await.is_err());
    drop(watched);
    let told = sandbox.common().reports.take("e").unwrap().attempts;
    let end = told.iter().find(|one| one.duration_ms > 0).unwrap();
    assert_eq!((end.verdict(), end.sent_bytes, end.received_bytes), (Verdict::DeniedLimit, 4501, 500));
}

#[tokio::test(start_paused = true)]
async fn limits_of_an_owner_hold_for_all_its_sandboxes_together() {
    let limits = egress::Limits {
        owner_connections_per_second: 3,
        owner_bytes_per_second: 1000,
        owner_daily_bytes: 3000,
        ..egress::Limits::default()
    };
    let owner: Arc<Owner> = Arc::default();
    let made = |owner: &Arc<Owner>| sandbox_of(Arc::clone(owner), policy(Mode::Open, &[], &[], limits));
    let (one, two, others) = (made(&owner), made(&owner), made(&Arc::default()));
    let named = |sandbox: &Arc<Sandbox>| ConnectionPermit::take(sandbox).map(drop);
    for sandbox in [&one, &two, &one] {
        named(sandbox).unwrap();
    }
    let refusal = named(&two).unwrap_err();
    assert_eq!(&*refusal.rule, "limits/owner_connections_per_second");
    assert!(refusal.knob.contains("rollbox quota set"), "{}", refusal.knob);
    named(&others).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    named(&two).unwrap();

    assert_eq!(one.moved(1000).unwrap(), Duration::ZERO);
    assert_eq!(two.moved(1000).unwrap(), Duration::from_secs(1), "after what the other one has moved");
    assert_eq!(others.moved(1000).unwrap(), Duration::ZERO);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(two.moved(1000).unwrap(), Duration::ZERO);
    assert_eq!(&*one.moved(1).unwrap_err().rule, "limits/owner_daily_bytes");
    assert_eq!(&*named(&two).unwrap_err().rule, "limits/owner_daily_bytes");
    assert!(owner.has_used_today());
    let raised = egress::Limits { owner_daily_bytes: 9000, ..limits };
    drop(two.switch(2, policy(Mode::Open, &[], &[], raised)));
    named(&two).unwrap();
    let told = one.common().metrics.render(crate::telemetry::Gauges::default());
    assert!(told.contains("rollbox_egress_limited_total{limit=\"owner_daily_bytes\"} 1"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_idle_once_nothing_was_sent_for_long() {
    let sandbox = sandbox(policy(Mode::Open, &[], &[], egress::Limits::default()));
    let passage = admit(&sandbox, "8.8.8.8:80").unwrap();
    let began = tokio::time::Instant::now();
    let talks = async {
        for _ in 0..4 {
            tokio::time::sleep(IDLE / 2).await;
            passage.received(1).unwrap();
        }
        std::future::pending::<()>().await;
    };
    let why = tokio::select! {
        () = talks => unreachable!(),
        why = passage.idle() => why,
    };
    assert_eq!((began.elapsed(), why.verdict), (IDLE * 3, Verdict::Idle));
    passage.ends(&why);
    drop(passage);
    let told = sandbox.common().reports.take("e").unwrap().attempts;
    assert_eq!(told.iter().find(|one| one.duration_ms > 0).unwrap().verdict(), Verdict::Idle);
}

#[tokio::test]
async fn the_first_policy_is_told_with_the_first_link() {
    let sandbox = sandbox(rules(&[]));
    sandbox.tell_applied(1, 0);
    assert!(sandbox.common().reports.take("e").is_none());
    sandbox.tell_linked(true, "");
    let told = sandbox.common().reports.take("e").unwrap();
    assert_eq!((told.applied.len(), told.links.len()), (1, 1));
    sandbox.tell_linked(true, "");
    assert!(sandbox.common().reports.take("e").is_none());
    sandbox.tell_applied(2, 0);
    assert_eq!(sandbox.common().reports.take("e").unwrap().applied[0].revision, 2);
}
