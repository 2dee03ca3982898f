//! The sidecar's life after the fork: wait for the spawner, run the probe, push readiness, serve.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use wire::{Code, Problem};

use crate::auth::Auth;
use crate::disk_limit;
use crate::log;
use crate::memory_files;
use crate::oom::OomCounter;
use crate::process::supervise::Context;
use crate::readiness::{self, BootTimes};
use crate::relay::sockets::Sockets;
use crate::relay::supervisor::{Relay, Supervisor};
use crate::request::Defaults;
use crate::ring::Budget;
use crate::server::agent::{Identity, Service};
use crate::server::connections::serve;
use crate::server::listen::Listener;
use crate::settings::{Egress, Endpoint, NAMES_PORT, Settings};
use crate::spawner::frame::Report;
use crate::spawner::link::{self, Connection, Link, lost};

/// On SIGTERM, calls under way get this long to end; after it they end with the process. Engines wait 10 s.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// A pod has one second, and the gateway answers its calls with the cause of its end, which comes from the control
/// plane.
const SHUTDOWN_GRACE_IN_POD: Duration = Duration::ZERO;
/// Memory for the output of all commands together: twice the most that one command may ask for, eight times what one
/// keeps by default.
const OUTPUT_BYTES: usize = 64 << 20;
/// How long a sidecar that cannot start tries to report that.
const FAILURE_PATIENCE: Duration = Duration::from_secs(30);

/// Runs a sidecar whose spawner has been forked; returns after SIGTERM or SIGINT.
///
/// # Errors
/// The sandbox cannot be entered, its init is gone, or it has written more than its disk limit.
pub async fn run(
    settings: Settings,
    sockets: Option<Sockets>,
    socket: UnixStream,
    first_fork: Pid,
    started: Instant,
) -> Result<(), Problem> {
    let (relay, supervisor) = sockets.map(Relay::new).unzip();
    let prepared = prepare(&settings, relay, socket, first_fork, started).await;
    if let Err(problem) = &prepared {
        tell_failure(&settings, problem).await;
    }
    serve_until_told(settings, prepared?, supervisor).await
}

/// Reports to the control plane that the sandbox will never be ready; gives up after a while.
pub async fn tell_failure(settings: &Settings, problem: &Problem) {
    let body = readiness::failure(settings, problem);
    // The exit code reports it too, to whatever watches the container.
    let _ = timeout(FAILURE_PATIENCE, readiness::push(settings, &body)).await;
}

struct Prepared {
    listener: Listener,
    link: Link,
    service: Service,
    draining: watch::Sender<bool>,
    spawner: tokio::task::JoinHandle<()>,
    kernel: String,
    boot: BootTimes,
}

async fn prepare(
    settings: &Settings,
    relay: Option<Relay>,
    socket: UnixStream,
    first_fork: Pid,
    started: Instant,
) -> Result<Prepared, Problem> {
    let connected = link::connect(socket).await;
    // The first fork has reported and ends, so this does not wait. The sandbox's init is not a child of this process.
    let _ = waitpid(first_fork, None);
    let Connection { link, driver: spawner, ready } = connected?;
    let Report::Ready { kernel, target_found_us, entered_us } = ready else {
        return Err(lost());
    };
    let context = Context {
        link: link.clone(),
        oom: OomCounter::open(),
        output: Arc::new(Budget::new(OUTPUT_BYTES)),
        orphan_grace: settings.orphan_grace,
    };
    let identity = Identity {
        sandbox_id: settings.sandbox_id.clone(),
        kernel: kernel.clone(),
        target_command: settings.target_command.clone(),
        started,
        own_ports: own_ports(settings),
        relay,
        limits: settings.limits,
    };
    let draining = watch::Sender::new(false);
    let service = Service::new(identity, context, draining.subscribe());
    service.probe(Defaults::default()).await?;
    if settings.interpreter {
        service.keep_interpreter().await?;
    }
    let probed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let boot = BootTimes { target_found_us, entered_us, probed_us };
    // Bound before readiness is pushed, because callers connect as soon as they know of it.
    let unbound =
        |err| Problem::new(Code::Internal, format!("cannot listen on {:?}: {err}", settings.listen));
    let listener = Listener::bind(&settings.listen).await.map_err(unbound)?;
    Ok(Prepared { listener, link, service, draining, spawner, kernel, boot })
}

async fn serve_until_told(
    settings: Settings,
    prepared: Prepared,
    supervisor: Option<Supervisor>,
) -> Result<(), Problem> {
    let Prepared { listener, link, service, draining, spawner, kernel, boot } = prepared;
    log::event(
        "ready",
        &[("sandbox_id", &settings.sandbox_id), ("boot_us", &boot.probed_us), ("kernel", &kernel)],
    );
    let unwatched = |err| Problem::new(Code::Internal, format!("cannot watch for signals: {err}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unwatched)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unwatched)?;
    let body = readiness::ready(&settings, &kernel, boot);
    let grace = shutdown_grace(&settings.listen);
    let Settings { sandbox_id, verifier, .. } = &settings;
    let auth = Auth::new(sandbox_id, verifier.clone(), service.bound());
    let serve = serve(listener, service.clone(), auth, draining.subscribe(), grace);
    let told = async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        draining.send_replace(true);
        std::future::pending::<()>().await;
    };
    let push = async {
        if readiness::push(&settings, &body).await {
            service.acknowledge();
        }
        std::future::pending::<()>().await;
    };
    let relayed = async {
        match supervisor {
            Some(supervisor) => supervisor.keep().await,
            None => std::future::pending().await,
        }
    };
    let files = async {
        // Elsewhere a command ends and not the sandbox, which can be asked.
        if kernel.to_lowercase().contains("gvisor") && settings.limits.memory_bytes > 0 {
            memory_files::watch(service.clone(), settings.limits.memory_bytes).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serve => Ok(()),
        () = files => Ok(()),
        _ = spawner => Err(lost()),
        () = push => Ok(()),
        () = told => Ok(()),
        full = disk_limit::exceeded(&link, settings.limits.disk_bytes) => Err(full),
        unkept = relayed => unkept.map(|never| match never {}).map_err(|err| Problem::new(Code::Internal, format!("no relay can be kept: {err}"))),
    }
}

/// The ports that are nobody else's, and not to be connected to through `ports`.
fn own_ports(settings: &Settings) -> Vec<u16> {
    let egress = settings.egress.into_iter();
    let relayed = egress.flat_map(|Egress { port, dns }| [Some(port), dns.then_some(NAMES_PORT)]).flatten();
    settings.listen.port().into_iter().chain(relayed).collect()
}

fn shutdown_grace(listen: &Endpoint) -> Duration {
    match listen {
        Endpoint::Unix(_) => SHUTDOWN_GRACE,
        Endpoint::Tcp(_) => SHUTDOWN_GRACE_IN_POD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_in_a_pod_is_not_waited_for() {
        assert_eq!(shutdown_grace(&Endpoint::Tcp("0.0.0.0:7070".parse().unwrap())), Duration::ZERO);
        assert!(shutdown_grace(&Endpoint::Unix("/run/a.sock".into())) > Duration::ZERO);
    }
}
