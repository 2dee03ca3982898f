//! Confines unpacked entries to one directory, whatever symbolic links lie there or appear meanwhile.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use wire::Code;

use crate::files::errors::{At, Stop, refusal};
use crate::files::info::is_directory;

/// Never follows a symbolic link, so that what is opened lies in the directory that it is opened from.
const STEP: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Directories that are remembered: most archives bring a directory before what it contains.
const MAX_MADE: usize = 10_000;

/// The directory that an archive is unpacked to.
#[derive(Debug)]
pub(super) struct Destination {
    root: OwnedFd,
    /// The directory of the last entry, cached: the next entry is often there too.
    last: Option<(Vec<Vec<u8>>, OwnedFd)>,
    /// Device and number of directories that were made before their own entry came, if it does.
    made: HashSet<(u64, u64)>,
}

impl Destination {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, last: None, made: HashSet::new() }
    }

    /// Opens the directory that `parts` lead to, and creates missing ones if `make` is set. `name` is the entry's, for
    /// errors.
    pub(super) fn open(&mut self, parts: &[&[u8]], name: &[u8], make: bool) -> Result<BorrowedFd<'_>, Stop> {
        if parts.is_empty() {
            return Ok(self.root.as_fd());
        }
        let known = self.last.as_ref().is_some_and(|(known, _)| known.iter().eq(parts));
        if !known {
            let mut at = self.root.try_clone().at(name)?;
            for part in parts {
                at = self.step(&at, part, make).map_err(|errno| refused(&at, part, errno, name))?;
            }
            self.last = Some((parts.iter().map(|part| part.to_vec()).collect(), at));
        }
        Ok(self.last.as_ref().map_or(self.root.as_fd(), |(_, found)| found.as_fd()))
    }

    fn step(&mut self, at: &OwnedFd, part: &[u8], make: bool) -> nix::Result<OwnedFd> {
        match openat(at, part, STEP, Mode::empty()) {
            Err(Errno::ENOENT) if make => {}
            opened => return opened,
        }
        let made = mkdirat(at, part, Mode::from_bits_truncate(0o777));
        if !matches!(made, Ok(()) | Err(Errno::EEXIST)) {
            made?;
        }
        let opened = openat(at, part, STEP, Mode::empty())?;
        if made.is_ok() && self.made.len() < MAX_MADE {
            let stat = fstat(&opened)?;
            self.made.insert((stat.st_dev, stat.st_ino));
        }
        Ok(opened)
    }

    /// Whether the directory with this stat was made for an entry in it, once.
    pub(super) fn take_made(&mut self, stat: &FileStat) -> bool {
        self.made.remove(&(stat.st_dev, stat.st_ino))
    }
}

fn refused(at: &OwnedFd, part: &[u8], errno: Errno, name: &[u8]) -> Stop {
    let is_link = fstatat(at, part, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| crate::files::info::kind(&stat) == nix::sys::stat::SFlag::S_IFLNK);
    if is_link && matches!(errno, Errno::ENOTDIR | Errno::ELOOP) {
        let sentence = "leads through a symbolic link, which an archive may not";
        return refusal(Code::InvalidArgument, name, "symlink_in_path", sentence).into();
    }
    Stop::Problem(crate::files::errors::problem(errno, name))
}

/// Calls `make` for `name`, after removing what has that name. A directory is not removed and gives `EISDIR`.
pub(super) fn replace<T>(
    directory: BorrowedFd<'_>,
    name: &[u8],
    make: impl Fn() -> nix::Result<T>,
) -> nix::Result<T> {
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        match make() {
            Err(Errno::EEXIST) => {}
            made => return made,
        }
        match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            // Some file systems return EPERM for a directory.
            Err(errno) => {
                let found = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
                return Err(if is_directory(&found) { Errno::EISDIR } else { errno });
            }
        }
    }
    Err(Errno::EBUSY)
}
