//! What commands find at `/tmp` and `/dev/shm`: files on disk, and files in as much memory as the sandbox has.
//!
//! A runtime decides both by itself. gVisor's mounts a file system in memory over an image's empty `/tmp`, for half of
//! what the *host* has: such files end the sandbox, and are in no image that is made of it. `/dev/shm` has 64 MiB on an
//! engine, and in gVisor again half of the host's memory.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use crate::mounts::{Mount, topmost};
use crate::target::Target;

const TMP: &str = "/tmp";
pub(super) const SHM: &str = "/dev/shm";
const FOR_ALL: u32 = 0o1777;

/// Sets both up. The caller is in the target's own mount namespace, so that all see the same: the target's main process,
/// and with it gVisor's kernel when it reads files for a commit.
///
/// # Errors
/// A mount cannot be changed; the message names it.
pub(super) fn settle(target: &Target, memory_bytes: u64, gvisor: bool) -> io::Result<()> {
    let mounts = &target.mounts;
    let made_for_mount = gvisor && uncover_tmp(target).map_err(|err| named(TMP, &err))?;
    // Programs expect it, and where an image lacks it gVisor's runtime has made one that only root may write to.
    if made_for_mount || fs::create_dir(TMP).is_ok() {
        fs::set_permissions(TMP, Permissions::from_mode(FOR_ALL)).map_err(|err| named(TMP, &err))?;
    }
    if memory_bytes > 0 {
        size_shm(topmost(mounts, Path::new(SHM)).as_ref(), memory_bytes).map_err(|err| named(SHM, &err))?;
    }
    Ok(())
}

/// Detaches what gVisor's runtime has mounted, if it has; whether the folder below it was made for that.
fn uncover_tmp(target: &Target) -> io::Result<bool> {
    // Where the image has a link there, the mount is where that leads to.
    let Ok(place) = fs::canonicalize(TMP) else { return Ok(false) };
    let found = topmost(&target.mounts, &place);
    if !found.is_some_and(|found| is_of_gvisor(&found)) {
        return Ok(false);
    }
    let mounted = fs::metadata(&place)?;
    umount2(&place, MntFlags::MNT_DETACH)?;
    let below = fs::metadata(&place)?;
    // Where the image lacks its working directory, it was made in what is gone now.
    fs::create_dir_all(Path::new(OsStr::from_bytes(&target.cwd)))?;
    let changed = |of: &fs::Metadata| (of.ctime(), of.ctime_nsec());
    // An image is unpacked before its container is made; a missing mount point is made after what is mounted there.
    Ok(changed(&below) >= changed(&mounted))
}

/// As large as the memory that its files count against: what is too much is refused before it ends the sandbox, as long
/// as little else takes memory.
fn size_shm(found: Option<&Mount<'_>>, bytes: u64) -> io::Result<()> {
    match found {
        // A volume of the image: it is on disk.
        Some(mounted) if mounted.kind != "tmpfs" => return Ok(()),
        Some(_) => {
            // What cannot be detached is covered.
            let _ = umount2(SHM, MntFlags::MNT_DETACH);
        }
        None => fs::create_dir_all(SHM)?,
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("shm"), SHM, Some("tmpfs"), flags, Some(format!("mode=1777,size={bytes}").as_str()))?)
}

/// What the files take that commands can have in memory: `/dev` is in memory too, and root may write there.
pub(super) fn file_bytes() -> u64 {
    let used = |place| {
        let seen = statfs(place).ok().filter(|seen| seen.filesystem_type() == TMPFS_MAGIC)?;
        let blocks = seen.blocks().saturating_sub(seen.blocks_free());
        Some(blocks.saturating_mul(u64::try_from(seen.block_size()).ok()?))
    };
    [SHM, "/dev"].into_iter().filter_map(used).fold(0, u64::saturating_add)
}

/// Of its mounts this one alone has these options: what a pod or an image declares there has others, and stays.
fn is_of_gvisor(mount: &Mount<'_>) -> bool {
    mount.kind == "tmpfs" && mount.options == "rw,mode=01777"
}

/// The failure, with what it happened to.
pub(super) fn named(path: &str, err: &io::Error) -> io::Error {
    io::Error::other(format!("{path}: {err}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_GVISOR: &str = "\
6 5 0:27 / / rw - overlay none rw
9 6 0:23 / /dev/shm rw,nosuid,nodev,noexec - tmpfs none rw
14 6 0:30 / /tmp rw - tmpfs none rw,mode=01777
";

    #[test]
    fn the_mount_over_an_empty_folder_is_known() {
        let found = topmost(IN_GVISOR, Path::new(TMP)).unwrap();
        assert!(is_of_gvisor(&found));
        assert!(!is_of_gvisor(&topmost(IN_GVISOR, Path::new(SHM)).unwrap()));
    }

    #[test]
    fn what_was_put_there_on_purpose_stays() {
        let mounted = |kind, options| Mount { at: TMP.into(), kind, options, writable: true };
        for options in
            ["rw", "rw,size=65536k,mode=01777", "rw,mode=1777", "ro,mode=01777", "rw,mode=01777,uid=5"]
        {
            assert!(!is_of_gvisor(&mounted("tmpfs", options)), "{options}");
        }
        assert!(!is_of_gvisor(&mounted("9p", "rw,mode=01777")));
    }
}
