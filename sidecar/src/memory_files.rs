//! Says in the log how much of the memory files have (`/dev/shm`). Under gVisor the whole sandbox ends for want of
//! memory, and the end of this log is all that is left to tell what of it were files.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::log;
use crate::server::agent::Service;

/// Each look wakes the spawner, which costs as much as a short command.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is told is a change by such a part of the limit: a few lines, however long a sandbox lives with its files.
const PARTS: u64 = 16;

/// Looks while something runs, until the spawner is gone; `limit_bytes` is the sandbox's memory.
pub async fn watch(service: Service, limit_bytes: u64) -> Infallible {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = 0;
    loop {
        looks.tick().await;
        if !service.is_busy() {
            continue;
        }
        let Ok(bytes) = service.memory_file_bytes().await else {
            return std::future::pending().await;
        };
        if is_news(bytes, told, limit_bytes) {
            log::event("memory_files", &[("bytes", &bytes)]);
            told = bytes;
        }
    }
}

fn is_news(bytes: u64, told: u64, limit_bytes: u64) -> bool {
    bytes.abs_diff(told) > limit_bytes / PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_limit_is_news_more_or_less() {
        let news = |bytes, told| is_news(bytes, told, 1600);
        assert_eq!(
            [news(0, 0), news(100, 0), news(101, 0), news(101, 101), news(0, 101)],
            [false, false, true, false, true]
        );
    }
}
