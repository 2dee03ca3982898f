//! Settings of gVisor's kernel by which programs would meet something else there than on Linux.
//!
//! On an engine the same settings are the machine's, which no sandbox may change.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Settings below `/proc/sys`, and the values that they get.
const VALUES: [(&str, &str); 2] = [
    // By default only ancestors may trace a process, so a debugger that attaches to a running one is refused. Nothing of
    // the platform depends on that: the init and the file workers are not dumpable, and the sidecar cannot be seen.
    ("kernel/yama/ptrace_scope", "0"),
    // gVisor's range begins at 16000, where the servers of many tests have their ports.
    ("net/ipv4/ip_local_port_range", "32768 60999"),
];

/// Writes the values. `/proc` must be the sandbox's own, and not protected yet.
///
/// What a version of gVisor does not have or does not take is left as it is: a sandbox works without it, and
/// `rollbox doctor` looks at it.
pub(super) fn write() {
    for (name, value) in VALUES {
        let _ = write_one(&Path::new("/proc/sys").join(name), value);
    }
}

fn write_one(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_written_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let (there, absent) = (directory.path().join("there"), directory.path().join("absent"));
        std::fs::write(&there, "1").unwrap();
        assert!(write_one(&there, "0").is_ok());
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "0");
        assert!(write_one(&absent, "0").is_err() && !absent.exists());
    }
}
