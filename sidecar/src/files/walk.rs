//! Visits a tree depth first, without following a symbolic link or resolving a path twice.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use wire::Code;

use super::errors::{At, Stop, refusal};
use super::info::is_directory;

/// Levels of a tree at most: each holds two descriptors, and processes may have 1024 at the least.
const MAX_DEPTH: usize = 256;
const READ_DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_CLOEXEC);

/// One entry of the tree.
pub(super) struct Entry<'a> {
    /// The directory that it is in.
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    /// Its path, from where the walk began.
    pub(super) path: &'a [u8],
    pub(super) stat: FileStat,
}

/// When an entry is visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// It has been found.
    Found,
    /// It is a directory that was entered and has been left.
    Left,
}

/// Whether a directory that was found is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Enter,
    Pass,
    /// The walk is over.
    Finish,
}

/// Opens a directory for a walk; with `follow` the last part of its path may be a symbolic link.
pub(super) fn open(base: BorrowedFd<'_>, name: &[u8], follow: bool) -> nix::Result<OwnedFd> {
    let flags = if follow { READ_DIRECTORY.difference(OFlag::O_NOFOLLOW) } else { READ_DIRECTORY };
    openat(base, name, flags, Mode::empty())
}

/// Visits everything below `directory`, whose path is `path`. Entries that disappear meanwhile are skipped.
pub(super) fn walk(
    directory: OwnedFd,
    path: &mut Vec<u8>,
    visit: &mut dyn FnMut(Moment, &Entry<'_>) -> Result<Next, Stop>,
) -> Result<Next, Stop> {
    level(directory, path, 0, visit)
}

fn level(
    directory: OwnedFd,
    path: &mut Vec<u8>,
    depth: usize,
    visit: &mut dyn FnMut(Moment, &Entry<'_>) -> Result<Next, Stop>,
) -> Result<Next, Stop> {
    if depth > MAX_DEPTH {
        let sentence = format!("is more than {MAX_DEPTH} directories deep");
        return Err(refusal(Code::InvalidArgument, path, "too_deep", &sentence).into());
    }
    let mut entries = Dir::from_fd(directory.try_clone().at(path)?).at(path)?;
    let length = path.len();
    for entry in entries.iter() {
        let entry = entry.at(path)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let next = one(&directory, name, path, depth, visit)?;
        path.truncate(length);
        if next == Next::Finish {
            return Ok(Next::Finish);
        }
    }
    Ok(Next::Pass)
}

fn one(
    directory: &OwnedFd,
    name: &CStr,
    path: &mut Vec<u8>,
    depth: usize,
    visit: &mut dyn FnMut(Moment, &Entry<'_>) -> Result<Next, Stop>,
) -> Result<Next, Stop> {
    let stat = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(Next::Pass),
        found => found.at(path)?,
    };
    let next = visit(Moment::Found, &Entry { directory: directory.as_fd(), name, path, stat })?;
    if next != Next::Enter || !is_directory(&stat) {
        return Ok(next);
    }
    let inner = match open(directory.as_fd(), name.to_bytes(), false) {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(Next::Pass),
        opened => opened.at(path)?,
    };
    if level(inner, path, depth + 1, visit)? == Next::Finish {
        return Ok(Next::Finish);
    }
    visit(Moment::Left, &Entry { directory: directory.as_fd(), name, path, stat })
}

/// Removes a directory with everything in it; returns how many files and directories were removed.
pub(super) fn remove_tree(base: BorrowedFd<'_>, name: &[u8], path: &mut Vec<u8>) -> Result<u64, Stop> {
    let mut count = 0;
    let inner = open(base, name, false).at(path)?;
    walk(inner, path, &mut |moment, entry| {
        let directory = is_directory(&entry.stat);
        if moment == Moment::Found && directory {
            return Ok(Next::Enter);
        }
        let how = if directory { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        match unlinkat(entry.directory, entry.name, how) {
            Err(Errno::ENOENT) => {}
            removed => {
                removed.at(entry.path)?;
                count += 1;
            }
        }
        Ok(Next::Pass)
    })?;
    unlinkat(base, name, UnlinkatFlags::RemoveDir).at(path)?;
    Ok(count + 1)
}
