//! File metadata as a message.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use nix::NixPath;
use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, SFlag};
use wire::agent::{FileInfo, FileKind};

const MODE_BITS: u32 = 0o7777;

/// The type bits of a mode.
pub(super) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Whether the file is a directory.
pub(super) fn is_directory(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFDIR
}

/// Permission bits with setuid, setgid and sticky.
pub(super) fn mode(stat: &FileStat) -> u32 {
    stat.st_mode & MODE_BITS
}

/// Whether both are stats of the same file.
pub(super) fn same(left: &FileStat, right: &FileStat) -> bool {
    (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)
}

/// Builds the message for `path`.
pub(super) fn info(path: &[u8], stat: &FileStat) -> FileInfo {
    let kind = match kind(stat) {
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        _ => FileKind::Other,
    };
    FileInfo {
        path: path.to_vec(),
        kind: kind.into(),
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: mode(stat),
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_at_ms: stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec / 1_000_000),
        ..FileInfo::default()
    }
}

/// The same with the target of a symbolic link; empty when the link has disappeared meanwhile.
pub(super) fn info_with_target(
    path: &[u8],
    stat: &FileStat,
    directory: impl AsFd,
    name: &(impl NixPath + ?Sized),
) -> FileInfo {
    let mut info = info(path, stat);
    if kind(stat) == SFlag::S_IFLNK {
        info.link_target = readlinkat(directory, name).map(OsStringExt::into_vec).unwrap_or_default();
    }
    info
}
