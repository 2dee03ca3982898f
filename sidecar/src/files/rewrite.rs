//! New content for a name. What is there already decides how the content comes there: as a new file that has all that
//! the old one had, moved over it; or, where a new file could not stand for the old one, written into it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, OFlag, fallocate, openat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{AccessFlags, Gid, Uid, faccessat, fchown, ftruncate, geteuid};

use super::errors::{At, Stop};
use super::info::mode;
use super::place::Temporary;
use super::read::{others, regular};
use crate::sys::attributes;

/// Folders for content that has to be complete before it is written, where its own folder takes no file.
const ELSEWHERE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Bytes that are written between two checks whether the caller is still there.
const STEP_BYTES: u64 = 8 << 20;
/// Attributes that a new file does not get from the old one: the kernel takes the first from every file that is written
/// to, and gives the second to every file.
const NOT_KEPT: [&[u8]; 2] = [b"security.capability", b"security.selinux"];
/// Set-user-ID and set-group-ID, which the kernel takes from a file that anybody but root writes to.
const SET_ID: u32 = 0o6000;
const TO_READ: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const TO_WRITE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// What is asked for beside the content; the rest is the old file's, or a new file's.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) owner: Option<(Uid, Gid)>,
    pub(super) mode: Option<u32>,
    /// The time of the last change.
    pub(super) modified: Option<TimeSpec>,
}

/// Content on its way to a name in an open directory.
#[derive(Debug)]
pub(super) struct Rewrite<'a> {
    directory: BorrowedFd<'a>,
    name: &'a [u8],
    /// For errors.
    path: &'a [u8],
    old: Option<FileStat>,
    content: File,
    /// The content's own name in the directory, from which it can be moved.
    temporary: Option<Temporary<'a>>,
    in_place: bool,
}

impl<'a> Rewrite<'a> {
    /// Opens a file for the content. `old` is the stat of the regular file that is there; its owner may replace it where it
    /// is read-only if `as_owner`.
    ///
    /// # Errors
    /// This process may not write to that file, or there is no room for another one.
    pub(super) fn begin(
        directory: BorrowedFd<'a>,
        name: &'a [u8],
        path: &'a [u8],
        old: Option<FileStat>,
        as_owner: bool,
        in_place: bool,
    ) -> Result<Self, Stop> {
        if let Some(old) = &old {
            may_write(directory, name, old, as_owner).at(path)?;
        }
        let (temporary, content) = match Temporary::file(directory, old.is_none()) {
            Err(refused) if old.is_some() => (None, elsewhere().ok_or(refused).at(path)?),
            // The directory exists, so ENOENT means that it takes no files, like those of `/proc`.
            Err(Errno::ENOENT) => return Err(Errno::EPERM).at(path),
            made => made.map(|(temporary, content)| (Some(temporary), content)).at(path)?,
        };
        Ok(Self { directory, name, path, old, content, temporary, in_place })
    }

    /// The file that takes the content.
    pub(super) fn content(&self) -> &File {
        &self.content
    }

    /// Brings the content to its name; returns the stat of the file that has it.
    ///
    /// # Errors
    /// As the kernel says. The old content is lost only if the disk fails while it is written over.
    pub(super) fn commit(mut self, wanted: Wanted) -> Result<FileStat, Stop> {
        let Some(temporary) = self.temporary.take() else { return self.pour(wanted) };
        let Some(old) = self.old else {
            dress(&self.content, wanted).at(self.path)?;
            temporary.move_to(self.name, true).at(self.path)?;
            return fstat(&self.content).at(self.path);
        };
        let replaced = !self.in_place
            && self.dress_as(&old, wanted).is_ok()
            && temporary.move_to(self.name, true).is_ok();
        if replaced { fstat(&self.content).at(self.path) } else { self.pour(wanted) }
    }

    /// Gives the new file what the old one has.
    fn dress_as(&self, old: &FileStat, wanted: Wanted) -> nix::Result<()> {
        let kept = if geteuid().is_root() { mode(old) } else { mode(old) & !SET_ID };
        let owner = wanted.owner.or(Some((Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid))));
        give(&self.content, owner)?;
        match openat(self.directory, self.name, TO_READ, Mode::empty()) {
            // It has been removed meanwhile.
            Err(Errno::ENOENT) => {}
            opened => same_attributes(opened?.as_fd(), self.content.as_fd())?,
        }
        dress(&self.content, Wanted { owner: None, mode: wanted.mode.or(Some(kept)), ..wanted })
    }

    /// Writes the content over the old one.
    fn pour(mut self, wanted: Wanted) -> Result<FileStat, Stop> {
        let path = self.path;
        let file = File::from(openat(self.directory, self.name, TO_WRITE, Mode::empty()).at(path)?);
        let before = fstat(&file).at(path)?;
        regular(&before, path)?;
        others(file.as_fd(), path)?;
        give(&file, wanted.owner).at(path)?;
        let changed = wanted.mode.filter(|wanted| *wanted != mode(&before));
        // Before the content, which it protects; and after it, since writing clears bits.
        set_mode(&file, changed).at(path)?;
        let size = fstat(&self.content).at(path)?.st_size;
        make_room(&file, before.st_size, size).at(path)?;
        self.content.seek(SeekFrom::Start(0)).at(path)?;
        while io::copy(&mut (&self.content).take(STEP_BYTES), &mut &file).at(path)? > 0 {}
        if before.st_size > size {
            ftruncate(&file, size).at(path)?;
        }
        set_mode(&file, changed.filter(|mode| mode & SET_ID > 0)).at(path)?;
        if let Some(time) = wanted.modified {
            // Another user's file has the time at which it was written: only its owner may set another one.
            let _ = futimens(&file, &time, &time);
        }
        fstat(&file).at(path)
    }
}

/// Whether this process may write to what is there.
fn may_write(directory: BorrowedFd<'_>, name: &[u8], old: &FileStat, as_owner: bool) -> nix::Result<()> {
    match faccessat(directory, name, AccessFlags::W_OK, AtFlags::empty()) {
        Err(Errno::EACCES) if as_owner && geteuid().as_raw() == old.st_uid => Ok(()),
        allowed => allowed,
    }
}

/// A file without a name in another folder.
fn elsewhere() -> Option<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    ELSEWHERE.into_iter().find_map(|folder| {
        let folder = openat(AT_FDCWD, folder, flags, Mode::empty()).ok()?;
        Temporary::file(folder.as_fd(), false).ok().map(|(_, file)| file)
    })
}

/// Makes room for what will be longer, so that a full disk leaves the old content. Where a file system cannot, the
/// content is written without.
fn make_room(file: &File, before: i64, size: i64) -> nix::Result<()> {
    if size <= before {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), before, size - before) {
        Err(full @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => {
            ftruncate(file, before)?;
            Err(full)
        }
        _ => Ok(()),
    }
}

fn dress(file: &File, wanted: Wanted) -> nix::Result<()> {
    give(file, wanted.owner)?;
    // After the owner, because a change of the owner clears bits of the mode.
    set_mode(file, wanted.mode)?;
    wanted.modified.map_or(Ok(()), |time| futimens(file, &time, &time))
}

fn give(file: &File, owner: Option<(Uid, Gid)>) -> nix::Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    let stat = fstat(file)?;
    if (stat.st_uid, stat.st_gid) == (uid.as_raw(), gid.as_raw()) {
        return Ok(());
    }
    // Users may give a file to a group of theirs, but to nobody, not even to themselves in every kernel.
    fchown(file, Some(uid).filter(|uid| uid.as_raw() != stat.st_uid), Some(gid))
}

fn set_mode(file: &File, mode: Option<u32>) -> nix::Result<()> {
    mode.map_or(Ok(()), |mode| fchmod(file, Mode::from_bits_truncate(mode)))
}

/// Gives `new` the extended attributes of `old`, and takes those that it got from its folder.
fn same_attributes(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> nix::Result<()> {
    let kept = |file| -> nix::Result<Vec<_>> {
        Ok(attributes::names(file)?.into_iter().filter(|name| !NOT_KEPT.contains(&name.to_bytes())).collect())
    };
    let wanted = kept(old)?;
    for extra in kept(new)?.iter().filter(|name| !wanted.contains(name)) {
        attributes::remove(new, extra)?;
    }
    wanted.iter().try_for_each(|name| attributes::set(new, name, &attributes::get(old, name)?))
}
