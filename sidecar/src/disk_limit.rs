//! Ends the sandbox once it has written more than its disk limit.
//!
//! Kubelets do that too, but a container runtime tells them what is written of its default snapshotter's images only. Of an
//! image that is mounted lazily they hear 0.

use std::time::Duration;

use wire::{Code, Problem};

use crate::spawner::link::Link;
use crate::usage::Disk;

/// Between two looks, each of which costs a message to the spawner and back. Kubelets look every ten seconds.
const EVERY: Duration = Duration::from_secs(2);

/// Completes when more is written than `limit_bytes` (0: no limit); never, where what is written is not counted apart.
pub async fn exceeded(link: &Link, limit_bytes: u64) -> Problem {
    loop {
        match link.disk().await {
            Ok(disk) if limit_bytes > 0 && disk.is_own => {
                if let Some(problem) = judge(disk, limit_bytes) {
                    return problem;
                }
            }
            // Without a spawner the sandbox ends for that.
            Ok(_) | Err(_) => std::future::pending().await,
        }
        tokio::time::sleep(EVERY).await;
    }
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
    fn what_is_written_ends_it_once_it_is_more_than_the_limit() {
        let written = |used_bytes| judge(Disk { used_bytes, is_own: true, ..Disk::default() }, 200 << 20);
        assert_eq!(written(200 << 20), None);
        let problem = written(612 << 20).unwrap();
        assert_eq!(problem.code, Code::DiskFull);
        assert_eq!(problem.detail, "612 MiB are written of the 200 MiB that its disk limit allows");
    }
}
