//! Sending a file.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlink};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{getpid, read as read_from};
use wire::Code;
use wire::agent::{FileChunk, ReadFileRequest};

use super::errors::{At, Stop, refusal};
use super::info::{info, kind};
use super::pipes::{Items, Outgoing};

/// Sends a file, or a part of it, and the last chunk.
pub(super) fn read(request: &ReadFileRequest) -> Result<(), Stop> {
    let path = request.path.as_slice();
    let (mut file, stat) = open(AT_FDCWD, path, path, true)?;
    let mut first = Items::default();
    first.push(&FileChunk { info: Some(info(path, &stat)), ..FileChunk::default() })?;
    let mut length = if request.length_bytes == 0 { u64::MAX } else { request.length_bytes };
    if request.offset_bytes > 0 {
        match file.seek(SeekFrom::Start(request.offset_bytes)) {
            // The offset is beyond the end of any file, so also of this one.
            Err(err) if err.raw_os_error() == Some(libc::EINVAL) => length = 0,
            sought => drop(sought.at(path)?),
        }
    }
    let mut out = Outgoing::after(first);
    send(&file, path, length, &mut out)?;
    out.end(|sha256| FileChunk { sha256, ..FileChunk::default() })
}

/// Sends the next bytes of `file`, at most `length`; returns how many there were.
pub(super) fn send(file: &File, path: &[u8], length: u64, out: &mut Outgoing) -> Result<u64, Stop> {
    let mut left = length;
    while left > 0 {
        let space = out.space();
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(space.len());
        match read_from(file, &mut space[..wanted]) {
            Ok(0) => break,
            Ok(count) => {
                left -= count as u64;
                out.advance(count)?;
            }
            Err(Errno::EINTR) => {}
            refused => drop(refused.at(path)?),
        }
    }
    Ok(length - left)
}

/// Opens a regular file for reading and never blocks: FIFOs without a writer, devices and sockets are refused before an
/// open could block or be noticed by them. `shown` is the path for messages.
pub(super) fn open(
    base: BorrowedFd<'_>,
    name: &(impl NixPath + ?Sized),
    shown: &[u8],
    follow: bool,
) -> Result<(File, FileStat), Stop> {
    let look = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
    regular(&fstatat(base, name, look).at(shown)?, shown)?;
    let mut flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    flags.set(OFlag::O_NOFOLLOW, !follow);
    let file = File::from(openat(base, name, flags, Mode::empty()).at(shown)?);
    let stat = fstat(&file).at(shown)?;
    regular(&stat, shown)?;
    others(file.as_fd(), shown)?;
    Ok((file, stat))
}

/// Refuses what is this process's own.
pub(super) fn others(file: BorrowedFd<'_>, path: &[u8]) -> Result<(), Stop> {
    if is_own(file) {
        let sentence = "is the platform's own";
        return Err(refusal(Code::PermissionDenied, path, "platform_own", sentence).into());
    }
    Ok(())
}

/// Refuses what is no regular file.
pub(super) fn regular(stat: &FileStat, path: &[u8]) -> Result<(), Stop> {
    match kind(stat) {
        SFlag::S_IFREG => Ok(()),
        SFlag::S_IFDIR => Err(Errno::EISDIR).at(path),
        SFlag::S_IFLNK => Err(Errno::ELOOP).at(path),
        _ => {
            let sentence = "is a device, FIFO or socket, not a regular file";
            Err(refusal(Code::InvalidArgument, path, "not_regular", sentence).into())
        }
    }
}

/// Whether the file is one of this process's own in `/proc`, by whatever path. The memory of this process is a copy of
/// the spawner's, and the kernel lets every process read its own memory.
fn is_own(file: BorrowedFd<'_>) -> bool {
    if !fstatfs(file).is_ok_and(|found| found.filesystem_type() == PROC_SUPER_MAGIC) {
        return false;
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let own = getpid().to_string();
    readlink(link.as_str())
        .map_or(true, |path| path.into_vec().split(|byte| *byte == b'/').any(|part| part == own.as_bytes()))
}
