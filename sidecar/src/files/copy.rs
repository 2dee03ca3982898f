//! Copies files and trees: each copy is made under a temporary name, then renamed into place.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, UtimensatFlags, fchmod, fstat, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat, symlinkat};
use wire::Code;
use wire::agent::{FileInfo, MoveFileRequest};

use super::errors::{At, Stop, refusal};
use super::info::{is_directory, kind, mode, same};
use super::pipes::still_wanted;
use super::place::{Place, Temporary, described, locate, make_parents};
use super::read;
use super::rewrite::{Rewrite, Wanted};
use super::walk::{self, Moment, Next, walk};

/// Bytes that are copied between two checks whether the caller is still there.
const STEP_BYTES: u64 = 8 << 20;
const NEW_FILE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// How a copy is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyOptions {
    /// Whether the copy may replace what is there.
    pub(super) replace: bool,
    /// Whether times and, where that is permitted, owners are copied too.
    pub(super) keep: bool,
}

/// Copies a file, or a directory with all that is in it. A symbolic link at the end of `from` is followed.
pub(super) fn copy(request: &MoveFileRequest) -> Result<FileInfo, Stop> {
    let (from, to) = (request.from.as_slice(), request.to.as_slice());
    if request.parents {
        make_parents(to)?;
    }
    let source = locate(from, true).at(from)?;
    let target = locate(to, false).at(to)?;
    tree(&source, from, &target, to, CopyOptions { replace: request.replace, keep: false })?;
    described(&target, to)
}

/// Copies what is at `source` to `target`.
pub(super) fn tree(
    source: &Place,
    from: &[u8],
    target: &Place,
    to: &[u8],
    options: CopyOptions,
) -> Result<(), Stop> {
    let stat = source.stat().at(from)?;
    let old = target.stat().ok();
    if !options.replace && old.is_some() {
        return Err(Errno::EEXIST).at(to);
    }
    let file = |stat: &FileStat| kind(stat) == SFlag::S_IFREG;
    if let Some(old) = old.filter(|old| !options.keep && file(old) && file(&stat)) {
        let (file, _) = read::open(source.directory.as_fd(), &*source.name, from, false)?;
        let rewrite = Rewrite::begin(target.directory.as_fd(), &target.name, to, Some(old), true, false)?;
        pour(&file, rewrite.content(), to)?;
        return rewrite.commit(Wanted::default()).map(drop);
    }
    if !is_directory(&stat) {
        let temporary = Temporary::unmade(target.directory.as_fd(), old.is_none());
        one(
            source.directory.as_fd(),
            &source.name,
            &stat,
            target.directory.as_fd(),
            &temporary.name,
            from,
            options,
        )?;
        return temporary.move_to(&target.name, options.replace).at(to);
    }
    let inner = walk::open(source.directory.as_fd(), &source.name, false).at(from)?;
    let (temporary, copy) = Temporary::new(target.directory.as_fd(), old.is_none(), |directory, name| {
        mkdirat(directory, name, Mode::S_IRWXU)?;
        walk::open(directory, name, false)
    })
    .at(to)?;
    contents(inner, copy.try_clone().at(to)?, from, options)?;
    finish_directory(&copy, &stat, options).at(to)?;
    temporary.move_to(&target.name, options.replace).at(to)
}

fn contents(from: OwnedFd, to: OwnedFd, path: &[u8], options: CopyOptions) -> Result<(), Stop> {
    let top = fstat(&to).at(path)?;
    let mut levels = vec![to];
    walk(from, &mut path.to_vec(), &mut |moment, entry| {
        still_wanted()?;
        if moment == Moment::Left {
            let Some(left) = levels.pop() else { return Ok(Next::Pass) };
            finish_directory(&left, &entry.stat, options).at(entry.path)?;
            return Ok(Next::Pass);
        }
        let Some(to) = levels.last() else { return Ok(Next::Pass) };
        let name = entry.name.to_bytes();
        if !is_directory(&entry.stat) {
            one(entry.directory, name, &entry.stat, to.as_fd(), name, entry.path, options)?;
            return Ok(Next::Pass);
        }
        if same(&entry.stat, &top) {
            let sentence = "would contain a copy of itself";
            return Err(refusal(Code::InvalidArgument, path, "into_itself", sentence).into());
        }
        mkdirat(to, name, Mode::S_IRWXU).at(entry.path)?;
        let inner = walk::open(to.as_fd(), name, false).at(entry.path)?;
        levels.push(inner);
        Ok(Next::Enter)
    })?;
    Ok(())
}

/// Copies one entry that is not a directory.
fn one(
    from: BorrowedFd<'_>,
    name: &[u8],
    stat: &FileStat,
    to: BorrowedFd<'_>,
    new_name: &[u8],
    path: &[u8],
    options: CopyOptions,
) -> Result<(), Stop> {
    match kind(stat) {
        SFlag::S_IFREG => {
            let (file, _) = read::open(from, name, path, false)?;
            let new = File::from(openat(to, new_name, NEW_FILE, Mode::from_bits_truncate(0o600)).at(path)?);
            pour(&file, &new, path)?;
            keep_owner(to, new_name, stat, options);
            fchmod(&new, permissions(stat)).at(path)?;
        }
        SFlag::S_IFLNK => {
            let target = readlinkat(from, name).at(path)?;
            symlinkat(target.as_os_str(), to, new_name).at(path)?;
            keep_owner(to, new_name, stat, options);
        }
        _ => {
            let sentence = "is a device, FIFO or socket, which cannot be copied";
            return Err(refusal(Code::InvalidArgument, path, "not_regular", sentence).into());
        }
    }
    if options.keep { keep_times(to, new_name, stat).at(path) } else { Ok(()) }
}

fn pour(from: &File, mut to: &File, path: &[u8]) -> Result<(), Stop> {
    while io::copy(&mut from.take(STEP_BYTES), &mut to).at(path)? > 0 {
        still_wanted()?;
    }
    Ok(())
}

fn finish_directory(directory: &OwnedFd, stat: &FileStat, options: CopyOptions) -> nix::Result<()> {
    keep_owner(directory.as_fd(), b".", stat, options);
    fchmod(directory, permissions(stat))?;
    if options.keep { keep_times(directory.as_fd(), b".", stat) } else { Ok(()) }
}

/// The original's permissions without setuid and setgid, which would lend the copier's identity.
fn permissions(stat: &FileStat) -> Mode {
    Mode::from_bits_truncate(mode(stat) & 0o1777)
}

/// Copies the owner. Only root can; for any other user the failure does not matter.
fn keep_owner(directory: BorrowedFd<'_>, name: &[u8], stat: &FileStat, options: CopyOptions) {
    if options.keep {
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        let _ = fchownat(directory, name, Some(uid), Some(gid), flags);
    }
}

fn keep_times(directory: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> nix::Result<()> {
    let accessed = TimeSpec::new(stat.st_atime, stat.st_atime_nsec);
    let modified = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
    utimensat(directory, name, &accessed, &modified, UtimensatFlags::NoFollowSymlink)
}
