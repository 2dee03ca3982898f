//! Describes files and lists directories.

use std::os::fd::AsFd;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::fstatat;
use wire::agent::{FileInfo, ListDirectoryRequest, PathRequest};

use super::errors::{At, Stop};
use super::info::info_with_target;
use super::pipes::{self, Items};
use super::walk::{self, Moment, Next, walk};

/// Describes one file.
pub(super) fn stat(request: &PathRequest) -> Result<FileInfo, Stop> {
    let path = request.path.as_slice();
    let look = if request.follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
    let stat = fstatat(AT_FDCWD, path, look).at(path)?;
    Ok(info_with_target(path, &stat, AT_FDCWD, path))
}

/// Lists a directory, or the tree below it; the paths begin with the directory's.
pub(super) fn list(request: &ListDirectoryRequest) -> Result<(), Stop> {
    let path = request.path.as_slice();
    let directory = walk::open(AT_FDCWD.as_fd(), path, true).at(path)?;
    let enter = if request.recursive { Next::Enter } else { Next::Pass };
    let (mut items, mut count) = (Items::default(), 0);
    walk(directory, &mut path.to_vec(), &mut |moment, entry| {
        if moment == Moment::Left {
            return Ok(Next::Pass);
        }
        items.push(&info_with_target(entry.path, &entry.stat, entry.directory, entry.name))?;
        count += 1;
        Ok(if request.limit > 0 && count >= request.limit { Next::Finish } else { enter })
    })?;
    items.flush()?;
    pipes::end(&FileInfo::default())
}
