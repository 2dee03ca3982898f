//! Finds the target's main process and reads what commands inherit from it.

pub mod limits;
pub mod status;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use wire::{Code, Problem};

use crate::sys;
use limits::Limit;
use status::Status;

/// The target appears within a few milliseconds of the sidecar, so the first checks come quickly.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The properties of the target's main process, which a command gets unless its caller sets others.
#[derive(Debug)]
pub struct Target {
    /// Its process id as the sidecar sees it.
    pub pid: i32,
    /// The image's environment variables.
    pub environ: Vec<(Vec<u8>, Vec<u8>)>,
    /// The image's working directory.
    pub cwd: Vec<u8>,
    /// User, groups, capabilities, umask.
    pub status: Status,
    /// Resource limits.
    pub limits: Vec<Limit>,
    /// The mounts that it sees, in the form of `/proc/PID/mountinfo`.
    pub mounts: String,
}

/// Waits until the target's main process exists and reads it.
///
/// # Errors
/// `start_timeout` when there is none within `timeout`; `internal` when it is there but cannot be read.
pub fn wait(command: &str, timeout: Duration) -> Result<Target, Problem> {
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(pid) = find(command) {
            return read(pid).map_err(|err| unreadable(pid, &err));
        }
        if Instant::now() >= deadline {
            let detail = format!("no process {command} of another container appeared within {timeout:?}");
            return Err(Problem::new(Code::StartTimeout, detail));
        }
        sys::pause(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn unreadable(pid: i32, err: &io::Error) -> Problem {
    Problem::new(Code::Internal, format!("the target's process {pid} cannot be read: {err}"))
}

/// Finds a process whose whole command line is `command` and whose mount namespace is not this process's. The whole
/// line is compared, so that a probe (`--probe`) is never taken for the target.
fn find(command: &str) -> Option<i32> {
    let own = mount_namespace("self")?;
    let wanted = [command.as_bytes(), b"\0"].concat();
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted))
        .find(|pid| mount_namespace(&pid.to_string()).is_some_and(|namespace| namespace != own))
}

fn mount_namespace(pid: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/mnt")).ok().map(|meta| meta.ino())
}

fn read(pid: i32) -> io::Result<Target> {
    let file = |name: &str| format!("/proc/{pid}/{name}");
    let malformed = |name: &str| io::Error::other(format!("{} is not of the known form", file(name)));
    let status = fs::read_to_string(file("status"))?;
    Ok(Target {
        pid,
        environ: environ(&fs::read(file("environ"))?),
        cwd: fs::read_link(Path::new(&file("cwd")))?.as_os_str().as_bytes().to_vec(),
        status: status::parse(&status).ok_or_else(|| malformed("status"))?,
        limits: limits::parse(&fs::read_to_string(file("limits"))?),
        mounts: fs::read_to_string(file("mountinfo"))?,
    })
}

/// Splits `NAME=value\0…`. An entry without `=` is not a variable. Variables that the kubelet has added are left out.
fn environ(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        Some((entry[..at].to_vec(), entry[at + 1..].to_vec()))
    };
    bytes.split(|byte| *byte == 0).filter_map(pair).filter(|(name, _)| !of_the_cluster(name)).collect()
}

/// Whether the variable names the API server's address: the kubelet gives these to every container, whether wanted or
/// not, and programs take them as a sign that they may call the API server.
fn of_the_cluster(name: &[u8]) -> bool {
    let service =
        [&b"KUBERNETES_SERVICE_HOST"[..], b"KUBERNETES_SERVICE_PORT", b"KUBERNETES_SERVICE_PORT_HTTPS"];
    service.contains(&name) || name == b"KUBERNETES_PORT" || name.starts_with(b"KUBERNETES_PORT_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_split_at_the_first_equals_sign() {
        let pairs = environ(b"PATH=/bin\0A==b=\0junk\0=x\0EMPTY=\0");
        let expected: [(&[u8], &[u8]); 3] = [(b"PATH", b"/bin"), (b"A", b"=b="), (b"EMPTY", b"")];
        assert!(pairs.iter().map(|(k, v)| (&k[..], &v[..])).eq(expected));
    }

    #[test]
    fn where_the_api_server_is_told_to_nobody() {
        let pairs = environ(
            b"KUBERNETES_SERVICE_HOST=10.0.0.1\0KUBERNETES_SERVICE_PORT=443\0KUBERNETES_SERVICE_PORT_HTTPS=443\0\
              KUBERNETES_PORT=tcp://10.0.0.1:443\0KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1\0\
              KUBERNETES_SERVICE_HOSTS=mine\0KUBERNETES=mine\0",
        );
        let names: Vec<&[u8]> = pairs.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"KUBERNETES_SERVICE_HOSTS"[..], b"KUBERNETES"]);
    }

    #[test]
    fn the_own_process_can_be_read() {
        let target = read(std::process::id().cast_signed()).unwrap();
        assert!(!target.limits.is_empty());
        assert!(target.cwd.starts_with(b"/"));
        assert!(target.mounts.contains(" / "));
    }

    #[test]
    fn a_process_in_the_own_mount_namespace_is_no_target() {
        let line = fs::read("/proc/self/cmdline").unwrap();
        let argv0 = String::from_utf8(line.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap();
        assert_eq!(find(&argv0), None);
    }
}
