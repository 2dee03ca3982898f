//! Ends the sandbox once it has written more than its disk limit.
//!
//! Kubelets do that too, but a container runtime tells them what is written of its default snapshotter's images only. Of an
//! image that is mounted lazily they hear 0.

use std::time::Duration;

use wire::{Code, Problem};

use crate::spawner::link::Link;
use crate::usage::Disk;

/// Between two looks, each of which costs a message to the spawner and back, while more is written.
const EVERY: Duration = Duration::from_secs(2);
/// The same where nothing is: a node has hundreds of idle sandboxes. Kubelets look as often at all.
const LONGEST: Duration = Duration::from_secs(10);

/// Completes when more is written than `limit_bytes` (0: no limit); never, where what is written is not counted apart.
pub async fn exceeded(link: &Link, limit_bytes: u64) -> Problem {
    let (mut seen_bytes, mut pause) = (0, EVERY);
    loop {
        match link.disk().await {
            Ok(disk) if limit_bytes > 0 && disk.is_own => {
                if let Some(problem) = judge(disk, limit_bytes) {
                    return problem;
                }
                pause = until_next(pause, disk.used_bytes != seen_bytes);
                seen_bytes = disk.used_bytes;
            }
            // Without a spawner the sandbox ends for that.
            Ok(_) | Err(_) => std::future::pending().await,
        }
        tokio::time::sleep(pause).await;
    }
}

fn until_next(pause: Duration, written: bool) -> Duration {
    if written { EVERY } else { LONGEST.min(pause * 2) }
}

fn judge(disk: Disk, limit_bytes: u64) -> Option<Problem> {
    let used = disk.used_bytes;
    let detail = || {
        format!("{} MiB are written of the {} MiB that its disk limit allows", used >> 20, limit_bytes >> 20)
    };
    (used > limit_bytes).then(|| Problem::new(Code::DiskFull, detail()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_still_is_looked_at_less_often() {
        let seconds = |pause, written| until_next(Duration::from_secs(pause), written).as_secs();
        assert_eq!(
            [seconds(2, false), seconds(4, false), seconds(8, false), seconds(10, false)],
            [4, 8, 10, 10]
        );
        assert_eq!([seconds(2, true), seconds(10, true)], [2, 2]);
    }

    #[test]
    fn what_is_written_ends_it_once_it_is_more_than_the_limit() {
        let written = |used_bytes| judge(Disk { used_bytes, is_own: true, ..Disk::default() }, 200 << 20);
        assert_eq!(written(200 << 20), None);
        let problem = written(612 << 20).unwrap();
        assert_eq!(problem.code, Code::DiskFull);
        assert_eq!(problem.detail, "612 MiB are written of the 200 MiB that its disk limit allows");
    }
}
