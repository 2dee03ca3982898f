//! Makes directories, moves and removes files.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, geteuid, unlinkat};
use wire::Code;
use wire::agent::{FileInfo, MakeDirectoryRequest, MoveFileRequest, RemoveFileRequest, Removed};

use super::copy;
use super::errors::{At, Stop, refusal};
use super::info::{info, is_directory, same};
use super::place::{Place, described, locate, make_directories, make_parents};
use super::walk::remove_tree;
use crate::mounts;

/// Makes a directory.
pub(super) fn make_directory(request: &MakeDirectoryRequest) -> Result<FileInfo, Stop> {
    let path = request.path.as_slice();
    let made = match mkdirat(AT_FDCWD, path, Mode::from_bits_truncate(0o777)) {
        Err(Errno::EEXIST) if request.parents => false,
        Err(Errno::ENOENT) if request.parents => {
            make_directories(path)?;
            true
        }
        made => made.at(path).map(|()| true)?,
    };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    if let Some(mode) = request.mode.filter(|_| made) {
        let directory = openat(AT_FDCWD, path, flags, Mode::empty()).at(path)?;
        fchmod(&directory, Mode::from_bits_truncate(mode)).at(path)?;
        return Ok(info(path, &fstat(&directory).at(path)?));
    }
    let stat = fstatat(AT_FDCWD, path, AtFlags::empty()).at(path)?;
    if is_directory(&stat) { Ok(info(path, &stat)) } else { Err(Errno::EEXIST).at(path) }
}

/// Moves a file or tree to another name. Between file systems it is copied, and removed once the copy is in place.
pub(super) fn rename(request: &MoveFileRequest) -> Result<FileInfo, Stop> {
    let (from, to) = (request.from.as_slice(), request.to.as_slice());
    if request.parents {
        make_parents(to)?;
    }
    let source = locate(from, false).at(from)?;
    let target = locate(to, false).at(to)?;
    let stat = source.stat().at(from)?;
    match target.take(&source.directory, &source.name, request.replace) {
        Err(Errno::EXDEV) => {
            copy::tree(
                &source,
                from,
                &target,
                to,
                copy::CopyOptions { replace: request.replace, keep: true },
            )?;
            take_away(&source, from, is_directory(&stat))?;
        }
        // The source exists (see above), so what is missing is in the target's path.
        Err(Errno::ENOENT) => return Err(Errno::ENOENT).at(to),
        Err(Errno::EINVAL) if is_directory(&stat) => {
            return Err(refusal(
                Code::InvalidArgument,
                to,
                "into_itself",
                "is inside of what is to be moved",
            )
            .into());
        }
        Err(errno) if refuses_to_go(errno, &source, &stat) => return Err(errno).at(from),
        taken => taken.at(to)?,
    }
    described(&target, to)
}

/// Whether a refused move is one of its source: something is mounted on it, or its user may not take it away.
fn refuses_to_go(errno: Errno, source: &Place, stat: &FileStat) -> bool {
    let directory = fstat(&source.directory);
    match errno {
        Errno::EBUSY => is_mount(source),
        Errno::EACCES => {
            let writable = |name: &[u8]| {
                faccessat(&source.directory, name, AccessFlags::W_OK, AtFlags::empty()) != Err(Errno::EACCES)
            };
            // A directory that goes elsewhere gets another `..`, so it has to be writable itself.
            !writable(b".") || (is_directory(stat) && !writable(&source.name))
        }
        Errno::EPERM => directory.is_ok_and(|directory| {
            let sticky = Mode::from_bits_truncate(directory.st_mode).contains(Mode::S_ISVTX);
            sticky && ![stat.st_uid, directory.st_uid].contains(&geteuid().as_raw())
        }),
        _ => false,
    }
}

/// Asks the table of mounts: under gVisor files and directories of one mount have different devices.
fn is_mount(place: &Place) -> bool {
    let directory = fs::read_link(format!("/proc/self/fd/{}", place.directory.as_raw_fd()));
    let at = directory.map(|directory| directory.join(OsStr::from_bytes(&place.name)));
    let table = fs::read_to_string("/proc/self/mountinfo");
    at.is_ok_and(|at| table.is_ok_and(|table| mounts::topmost(&table, &at).is_some()))
}

fn take_away(place: &Place, path: &[u8], directory: bool) -> Result<u64, Stop> {
    if directory {
        return remove_tree(place.directory.as_fd(), &place.name, &mut path.to_vec());
    }
    unlinkat(&place.directory, place.name.as_slice(), UnlinkatFlags::NoRemoveDir).at(path).map(|()| 1)
}

/// Removes a file or directory, with `recursive` a whole tree.
pub(super) fn remove(request: &RemoveFileRequest) -> Result<Removed, Stop> {
    let path = request.path.as_slice();
    let stat = match fstatat(AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT | Errno::ENOTDIR) if request.missing_ok => return Ok(Removed { count: 0 }),
        found => found.at(path)?,
    };
    if same(&stat, &fstatat(AT_FDCWD, "/", AtFlags::empty()).at(b"/")?) {
        return Err(refusal(Code::InvalidArgument, path, "is_root", "is the root of the file system").into());
    }
    let place = locate(path, false).at(path)?;
    let count = if !is_directory(&stat) || request.recursive {
        take_away(&place, path, is_directory(&stat))?
    } else {
        unlinkat(&place.directory, place.name.as_slice(), UnlinkatFlags::RemoveDir).at(path).map(|()| 1)?
    };
    Ok(Removed { count })
}
