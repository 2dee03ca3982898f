//! A value that tasks wait for. Smaller than the runtime's channel for it (which spreads its waiters over eight lists,
//! for many threads): hundreds of finished processes are kept.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// A value, and those who wait for it to be another one.
#[derive(Debug)]
pub(super) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    /// The value that nobody waits for yet.
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    /// The value now; not to be held for long.
    pub(super) fn look(&self) -> MutexGuard<'_, T> {
        super::lock(&self.value)
    }

    /// Changes the value and wakes whoever waits.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.look());
        self.changed.notify_waiters();
        changed
    }

    /// Completes with the first change after this call, whenever it is polled first.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<'_, T> {
        self.changed.notified()
    }

    /// Waits until `found` finds something in the value.
    pub(super) async fn until<R>(&self, found: impl Fn(&T) -> Option<R>) -> R {
        loop {
            // Before the look, so that no change between the two is missed.
            let changed = self.changed();
            if let Some(result) = found(&self.look()) {
                return result;
            }
            changed.await;
        }
    }
}
