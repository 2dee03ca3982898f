//! The sandbox's resource usage. No container runs here, so the figures of control groups are the machine's, if any.

use wire::agent::UsageRequest;

use crate::sandbox::{Sandbox, signed};

#[tokio::test]
async fn usage_is_told_against_the_limits_that_were_given() {
    let sandbox = Sandbox::start_with(&[("MEMORY_LIMIT_BYTES", "1000"), ("PIDS_LIMIT", "7")]).await;
    let report = sandbox.client.clone().usage(signed(UsageRequest {})).await.unwrap().into_inner();
    assert_eq!((report.memory_limit_bytes, report.processes_limit), (1000, 7));
    // Its root file system is this machine's.
    assert_eq!((report.disk_bytes, report.disk_limit_bytes), (None, 0));
}
