//! How many files may be open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to the maximum: two connections per sandbox soon exceed the usual 1024.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(error = %e, "cannot raise the limit of open files, keeping the present one");
    }
}
