//! A value that tasks wait for. Smaller than tokio's watch channel, which spreads its waiters over eight lists for many
//! threads: hundreds of finished processes are kept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value, and the tasks that wait for it to change.
#[derive(Debug)]
pub(super) struct SmallWatch<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> SmallWatch<T> {
    /// A value without waiting tasks.
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    /// Locks the value; not to be held for long.
    pub(super) fn look(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }

    /// Changes the value and wakes all that wait.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.look());
        self.changed.notify_waiters();
        changed
    }

    /// Completes at the first change after this call, no matter when it is first polled.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<'_, T> {
        self.changed.notified()
    }

    /// Waits until `found` returns something for the value.
    pub(super) async fn until<R>(&self, found: impl Fn(&T) -> Option<R>) -> R {
        loop {
            // Subscribes before it checks, so that no change between the two is missed.
            let changed = self.changed();
            if let Some(result) = found(&self.look()) {
                return result;
            }
            changed.await;
        }
    }
}

/// Ignores poisoning: no code panics while it holds a lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
