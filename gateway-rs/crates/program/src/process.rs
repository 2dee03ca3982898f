//! The life of a process from outside: settings, log, runtime, signals, exit status.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::Targets;

use crate::settings::{InvalidSetting, Read};
use crate::{descriptors, log, memory};

/// Exit status for settings that cannot be used (EX_USAGE of sysexits.h).
pub const EXIT_SETTINGS: u8 = 64;

/// Exit status for everything else that keeps a program from running.
pub const EXIT_FAILED: u8 = 1;

/// Time for what blocks a thread when all else is over.
const THREADS_GRACE: Duration = Duration::from_secs(1);

/// A program that runs until SIGTERM or SIGINT, and then drains.
pub trait Program: Sized {
    /// Of its binary: what its errors begin with.
    const NAME: &'static str;
    /// Its settings, from the environment.
    type Settings;
    /// Why it does not run, or not any more.
    type Failed: fmt::Display + From<io::Error>;

    /// Reads its settings.
    ///
    /// # Errors
    /// The first variable that is missing or breaks its rule.
    fn settings(read: Read<'_>) -> Result<Self::Settings, InvalidSetting>;

    /// What is logged.
    fn levels(settings: &Self::Settings) -> Targets;

    /// Begins to serve; called inside a runtime.
    fn start(settings: Self::Settings) -> impl Future<Output = Result<Self, Self::Failed>>;

    /// Completes when a part that should run for ever has ended.
    fn broken(&mut self) -> impl Future<Output = Self::Failed>;

    /// Drains, and ends; at once when `hurry` completes.
    fn stop_within(self, hurry: impl Future<Output = ()>) -> impl Future<Output = ()>;
}

/// Runs a program with the settings of the environment variables; returns its exit status. Blocks.
pub fn run_from_environment<P: Program>() -> u8 {
    let settings = match P::settings(&|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(invalid) => {
            eprintln!("{}: {invalid}", P::NAME);
            return EXIT_SETTINGS;
        }
    };
    log::install(P::levels(&settings));
    memory::configure();
    descriptors::raise_limit();
    match run::<P>(settings) {
        Ok(()) => 0,
        Err(failed) => {
            eprintln!("{}: {failed}", P::NAME);
            EXIT_FAILED
        }
    }
}

fn run<P: Program>(settings: P::Settings) -> Result<(), P::Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve::<P>(settings));
    runtime.shutdown_timeout(THREADS_GRACE);
    outcome
}

async fn serve<P: Program>(settings: P::Settings) -> Result<(), P::Failed> {
    let mut signals = Signals::watch()?;
    let mut running = P::start(settings).await?;
    let broken = tokio::select! {
        () = signals.next() => None,
        failed = running.broken() => Some(failed),
    };
    // A second signal ends the drain at once.
    running.stop_within(signals.next()).await;
    broken.map_or(Ok(()), Err)
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn watch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
