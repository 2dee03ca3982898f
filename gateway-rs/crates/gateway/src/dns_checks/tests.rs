use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};

use resolve::{Address, Directory, Entry, Found, Lookup, LookupFailed, PublicPorts, Update};

use super::*;
use crate::telemetry::Gauges;

/// Names with their addresses; a look-up of a name with `None` fails for another reason than absence.
struct Names(HashMap<&'static str, Option<&'static str>>);

impl Lookup for Names {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
        let failed = |absent| Err(LookupFailed { host: host.to_owned(), reason: String::new(), absent });
        let found = match self.0.get(host.split('.').next().unwrap()) {
            Some(Some(ip)) => Ok(vec![ip.parse().unwrap()]),
            Some(None) => failed(false),
            None => failed(true),
        };
        Box::pin(async { found })
    }
}

fn push(directory: &Directory, id: &str) -> Arc<Route> {
    let address = Address::Tcp { host: "10.0.0.1".to_owned(), port: 7070 };
    let entry = Entry {
        sandbox_id: id.into(),
        address,
        generation: 1,
        owner: "o".into(),
        ports: PublicPorts::default(),
    };
    directory.apply(Update::Delta { routes: vec![entry], ends: Vec::new() });
    let Found::Live(route) = directory.find(id) else { panic!("{id} is not there") };
    route
}

#[tokio::test(start_paused = true)]
async fn each_outcome_is_counted_once_what_ended_is_not_and_a_full_queue_waits_for_nobody() {
    let names = [("sb-same", Some("10.0.0.1")), ("sb-other", Some("10.0.0.2")), ("sb-error", None)];
    let dns = Dns::new(Box::new(Names(names.into())), "zone", NonZeroU32::MIN);
    let (metrics, directory, (checks, queue)) = (Metrics::new(), Directory::new(), Checks::new());
    for id in ["sb-same", "sb-other", "sb-error", "sb-absent"] {
        checks.offer(push(&directory, id));
    }
    let ended = push(&directory, "sb-ended");
    checks.offer(Arc::clone(&ended));
    for _ in 0..2 * QUEUE {
        checks.offer(Arc::clone(&ended));
    }
    directory.apply(Update::Delta {
        routes: Vec::new(),
        ends: vec![resolve::Tombstone {
            sandbox_id: "sb-ended".into(),
            generation: 1,
            cause: wire::Code::Deleted,
            detail: String::new(),
            details: BTreeMap::new(),
            at_ms: 0,
        }],
    });
    drop(checks);
    run(&dns, &metrics, queue).await;
    let text = metrics.render(&Gauges::default());
    for outcome in ["agree", "disagree", "absent", "error"] {
        let line = format!("rollbox_gateway_dns_checks_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(text.contains(&line), "{outcome}: {text}");
    }
}

/// A name that is there from the look-up after so many on.
struct Late(AtomicU32);

impl Lookup for Late {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
        let absent = || LookupFailed { host: host.to_owned(), reason: String::new(), absent: true };
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let found = if left.is_ok() { Err(absent()) } else { Ok(vec!["10.0.0.1".parse().unwrap()]) };
        Box::pin(async { found })
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_only_late_is_looked_up_again_and_counts_once() {
    for (absent_looks, outcome) in [(LOOKS - 1, "agree"), (LOOKS, "absent")] {
        let dns = Dns::new(Box::new(Late(AtomicU32::new(absent_looks))), "zone", NonZeroU32::MIN);
        let (metrics, directory, (checks, queue)) = (Metrics::new(), Directory::new(), Checks::new());
        checks.offer(push(&directory, "sb-late"));
        drop(checks);
        run(&dns, &metrics, queue).await;
        let text = metrics.render(&Gauges::default());
        for one in ["agree", "disagree", "absent", "error"] {
            let line = format!(
                "rollbox_gateway_dns_checks_total{{outcome=\"{one}\"}} {}\n",
                u32::from(one == outcome)
            );
            assert!(text.contains(&line), "{outcome}: {text}");
        }
    }
}
