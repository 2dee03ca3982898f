//! Mounts a `/proc` for the nested PID namespace, protected as container engines protect theirs.
//!
//! The engine's own protections are on the `/proc` that this one covers. Without them a root command could write
//! `/proc/sys/kernel/core_pattern`, which the host's kernel then runs as host root. So on a real Linux kernel every
//! step must succeed; only paths that do not exist are skipped.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{SFlag, major, minor, stat};
use nix::sys::utsname::uname;

/// The paths below `/proc` in the default lists of OCI runtimes.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const NULL: &str = "/dev/null";
const FLAGS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// Mounts the new `/proc`; [`protect`] has to follow before any command starts. The caller must be in a mount namespace
/// of its own.
///
/// # Errors
/// A mount failed; the message names its path.
pub(super) fn replace() -> io::Result<()> {
    step("/", mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>))?;
    step("/proc", mount(Some("proc"), "/proc", Some("proc"), FLAGS, None::<&str>))
}

/// Makes the settings of the kernel read-only, and covers what tells of the machine.
///
/// # Errors
/// A mount failed; the message names its path. Also when the image's `/dev/null` is not the null device, since masked
/// files are covered with it.
pub(super) fn protect() -> io::Result<()> {
    let lenient = is_gvisor();
    for path in READ_ONLY {
        tolerate(lenient, path, make_read_only(path))?;
    }
    for path in MASKED {
        tolerate(lenient, path, mask(path))?;
    }
    Ok(())
}

/// Whether the kernel is gVisor's. gVisor is a user-space process: its `/proc` shows nothing of the host, and not all
/// of these mounts work there.
pub(super) fn is_gvisor() -> bool {
    uname().is_ok_and(|kernel| {
        [kernel.release(), kernel.version()]
            .iter()
            .any(|text| text.to_string_lossy().to_lowercase().contains("gvisor"))
    })
}

fn make_read_only(path: &str) -> nix::Result<()> {
    mount(Some(path), path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
    let remount = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | FLAGS;
    mount(None::<&str>, path, None::<&str>, remount, None::<&str>)
}

fn mask(path: &str) -> nix::Result<()> {
    if Path::new(path).is_dir() {
        let options: Option<&CStr> = Some(c"size=0k,nr_inodes=2");
        return mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::MS_RDONLY, options);
    }
    if !is_null_device()? {
        return Err(Errno::ENODEV);
    }
    mount(Some(NULL), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
}

fn is_null_device() -> nix::Result<bool> {
    let found = stat(NULL)?;
    let character = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    Ok(character && major(found.st_rdev) == 1 && minor(found.st_rdev) == 3)
}

/// A path that does not exist needs no protection. A missing `/dev/null` also gives ENOENT, and must not leave an
/// existing path unprotected.
fn tolerate(lenient: bool, path: &str, done: nix::Result<()>) -> io::Result<()> {
    let absent = done == Err(Errno::ENOENT) && !Path::new(path).exists();
    if absent || lenient { Ok(()) } else { step(path, done) }
}

fn step(path: &str, done: nix::Result<()>) -> io::Result<()> {
    done.map_err(|errno| io::Error::other(format!("mount at {path}: {}", errno.desc())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absent_is_passed_over() {
        assert!(tolerate(false, "/proc/no-such", Err(Errno::ENOENT)).is_ok());
        assert!(tolerate(false, "/proc/sys", Err(Errno::ENOENT)).is_err());
        assert!(tolerate(false, "/proc/no-such", Err(Errno::EPERM)).is_err());
        assert!(tolerate(true, "/proc/sys", Err(Errno::EINVAL)).is_ok());
    }

    #[test]
    fn the_null_device_is_known() {
        assert_eq!(is_null_device(), Ok(true));
    }
}
