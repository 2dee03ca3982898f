//! Folders that the image declares as `VOLUME`: parts of the root file system like all others.
//!
//! A runtime mounts a folder of the node there, with a copy of what the image has. Nobody counts what is written to it, and
//! it is in no image that is made of the sandbox. So these mounts are detached, and what is below them is seen: the
//! image's own folder, with its modes and owners.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use super::memory_mounts::{SHM, named};
use crate::mounts::{self, Mount};
use crate::target::Target;

/// What the kernel itself has behind a mount: no folder of a node.
const OF_THE_KERNEL: [&str; 10] =
    ["tmpfs", "ramfs", "proc", "sysfs", "dev", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2"];
const OWN: &str = "/proc/self/ns/mnt";
/// Below these nothing is on the root file system, whatever an image declares.
const NOT_ON_DISK: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Detaches them. The caller is in the target's own mount namespace, so that all see the same.
///
/// Which they are no kernel tells. A folder of the node that can be written is one if it has what the folder below it
/// has, and nothing more than the runtime had to make there: what an admission controller has put into the pod stays.
///
/// Under gVisor every folder of a node is one by that rule, since the gofer of the root file system shows below a mount
/// point what is mounted there. So those of the platform are named: `mounted` are their places, with no link on the way.
///
/// # Errors
/// A mount cannot be changed; the message names it.
pub(super) fn detach(target: &Target, mounted: &[PathBuf]) -> io::Result<()> {
    let all: Vec<PathBuf> = mounts::all(&target.mounts).map(|one| one.at).collect();
    let found = folders(&target.mounts, mounted);
    // Where its `/proc` does not show this process, no container runtime has made it: what is mounted there was there before.
    if found.is_empty() || !fs::exists(OWN)? {
        return Ok(());
    }
    let cwd = PathBuf::from(OsStr::from_bytes(&target.cwd));
    let made: Vec<&Path> = all.iter().chain([&cwd]).map(PathBuf::as_path).collect();
    let volumes = apart(|| copies(&found, &made))?;
    for at in &volumes {
        uncover(at, &kept(at, &all, &volumes)).map_err(|err| named(&at.to_string_lossy(), &err))?;
    }
    // One in another one was made in that, and so was a working directory that the image lacks.
    for at in volumes.iter().chain(volumes.iter().any(|at| cwd.starts_with(at)).then_some(&cwd)) {
        fs::create_dir_all(at).map_err(|err| named(&at.to_string_lossy(), &err))?;
    }
    Ok(())
}

/// Folders that may be such volumes, what is deeper first.
fn folders(mountinfo: &str, mounted: &[PathBuf]) -> Vec<PathBuf> {
    let on_disk = |mount: &Mount<'_>| {
        mount.writable
            && !OF_THE_KERNEL.contains(&mount.kind)
            && mount.at != Path::new("/")
            && !mounted.contains(&mount.at)
            && !NOT_ON_DISK.iter().any(|place| mount.at.starts_with(place))
    };
    let alone = |at: &Path| mounts::all(mountinfo).filter(|mount| mount.at == at).count() == 1;
    let mut found: Vec<PathBuf> = mounts::all(mountinfo)
        .filter(|mount| on_disk(mount) && alone(&mount.at))
        .map(|mount| mount.at)
        .filter(|at| at.is_dir())
        .collect();
    found.sort_by_key(|at| std::cmp::Reverse(at.components().count()));
    found
}

/// Does something in a copy of the mount namespace, where mounts can be detached to see what is below.
fn apart<T>(look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = File::open(OWN)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let seen = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(io::Error::from)
        .and_then(|()| look());
    setns(own, CloneFlags::CLONE_NEWNS)?;
    seen
}

/// Those that are copies of what is below them; all are detached.
fn copies(found: &[PathBuf], made: &[&Path]) -> io::Result<Vec<PathBuf>> {
    let above: Vec<_> = found.iter().map(|at| names(at)).collect();
    for at in found {
        umount2(at, MntFlags::MNT_DETACH).map_err(|err| named(&at.to_string_lossy(), &err.into()))?;
    }
    let is_one = |at: &Path, above: &BTreeSet<OsString>| {
        names(at).is_ok_and(|below| is_copy(above, &below, &made_in(at, made)))
    };
    let judged =
        found.iter().zip(above).filter(|(at, above)| above.as_ref().is_ok_and(|above| is_one(at, above)));
    Ok(judged.map(|(at, _)| at.clone()).collect())
}

fn names(folder: &Path) -> io::Result<BTreeSet<OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect(),
        // In a folder that is itself a volume, and that the image does not have.
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(err) => Err(err),
    }
}

/// What a runtime makes in a folder so that it can mount there, or begin there.
fn made_in(at: &Path, made: &[&Path]) -> BTreeSet<OsString> {
    let first =
        |place: &&Path| Some(place.strip_prefix(at).ok()?.components().next()?.as_os_str().to_owned());
    made.iter().filter_map(first).collect()
}

fn is_copy(above: &BTreeSet<OsString>, below: &BTreeSet<OsString>, made: &BTreeSet<OsString>) -> bool {
    below.is_subset(above) && above.difference(below).all(|name| made.contains(name))
}

/// What is mounted in a volume and is none: it stays.
fn kept<'a>(at: &Path, all: &'a [PathBuf], volumes: &[PathBuf]) -> Vec<&'a Path> {
    all.iter().filter(|one| is_below(one, at) && !volumes.contains(one)).map(PathBuf::as_path).collect()
}

fn is_below(place: &Path, at: &Path) -> bool {
    place != at && place.starts_with(at)
}

/// Detaches what is mounted, and mounts again what else was mounted in it: `/etc/hosts` where `/etc` is a volume.
fn uncover(at: &Path, kept: &[&Path]) -> io::Result<()> {
    if kept.is_empty() {
        return Ok(umount2(at, MntFlags::MNT_DETACH)?);
    }
    let held = |number: usize| Path::new(SHM).join(number.to_string());
    fs::create_dir_all(SHM)?;
    mount(Some("held"), SHM, Some("tmpfs"), MsFlags::empty(), Some("mode=700,size=64k"))?;
    let moved = (|| {
        for (number, place) in kept.iter().enumerate() {
            bind(place, &held(number))?;
        }
        umount2(at, MntFlags::MNT_DETACH)?;
        for (number, place) in kept.iter().enumerate() {
            bind(&held(number), place)?;
        }
        Ok(())
    })();
    umount2(SHM, MntFlags::MNT_DETACH)?;
    moved
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    if from.is_dir() {
        fs::create_dir_all(to)?;
    } else if !to.exists() {
        File::create(to)?;
    }
    Ok(mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_is_below_and_what_the_runtime_had_to_make() {
        let set = |names: &[&str]| names.iter().map(OsString::from).collect::<BTreeSet<_>>();
        let copy = |above, below, made| is_copy(&set(above), &set(below), &set(made));
        assert!(copy(&[], &[], &[]));
        assert!(copy(&["file", "work"], &["file"], &["work"]));
        assert!(!copy(&["file", "other"], &["file"], &["work"]));
        // What hides something of the image is none.
        assert!(!copy(&[], &["file"], &[]));
    }

    #[test]
    fn what_a_runtime_makes_is_on_the_way_to_mounts_and_to_the_working_directory() {
        let made = ["/data", "/data/inner/deep", "/database", "/data/work"].map(Path::new);
        assert_eq!(made_in(Path::new("/data"), &made), ["inner", "work"].map(OsString::from).into());
    }

    #[test]
    fn only_folders_of_the_node_that_can_be_written_are_looked_at_and_deeper_ones_first() {
        // Places that are folders here as well.
        let mountinfo = "\
36 35 0:36 / / rw - overlay none rw
38 36 0:37 / /dev rw - dev none rw
42 36 0:41 / /usr rw - 9p none rw
43 42 0:50 / /usr/bin rw - 9p none rw
44 36 0:51 / /etc/passwd rw - 9p none rw
45 36 0:51 / /etc ro - 9p none rw
46 36 0:30 / /tmp rw - tmpfs none rw
47 38 0:30 / /dev/shm rw - 9p none rw
48 36 0:30 / /var rw - 9p none rw
49 48 0:31 / /var rw - 9p none rw
";
        assert_eq!(folders(mountinfo, &[]), ["/usr/bin", "/usr"].map(PathBuf::from));
    }

    #[test]
    fn what_the_platform_has_mounted_is_none_and_stays_in_a_volume_that_is_detached() {
        let mountinfo = "\
36 35 0:36 / / rw - overlay none rw
42 36 0:41 / /usr rw - 9p none rw
43 42 0:50 / /usr/bin rw - 9p none rw
44 42 0:51 / /usr/lib rw - 9p none rw
45 36 0:52 / /var rw - 9p none rw
";
        let mounted = ["/usr/bin", "/var"].map(PathBuf::from);
        let volumes = folders(mountinfo, &mounted);
        assert_eq!(volumes, ["/usr/lib", "/usr"].map(PathBuf::from));
        let all: Vec<PathBuf> = mounts::all(mountinfo).map(|one| one.at).collect();
        assert_eq!(kept(Path::new("/usr"), &all, &volumes), [Path::new("/usr/bin")]);
    }
}
