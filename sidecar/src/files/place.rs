//! Names in open directories, and temporary files that are made beside a file before they take its place.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, readlinkat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use wire::agent::FileInfo;

use super::errors::{At, Stop};
use super::info::info_with_target;
use super::walk;

/// The kernel's limit of symbolic links in one path.
const MAX_LINKS: usize = 40;
/// More collisions than these are no accident: some process causes them.
const MAX_TRIES: u32 = 16;
/// Prefix of temporary names.
pub(super) const TEMPORARY: &str = ".rollbox-";
/// Prefix of those of what will stand where nothing is, by which a watch tells its end from a replacement.
pub(super) const ADDED: &str = ".rollbox-new-";
const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A name in an open directory; a file of that name may exist or not.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) directory: OwnedFd,
    pub(super) name: Vec<u8>,
}

impl Place {
    /// The stat of what is there, without following a symbolic link.
    pub(super) fn stat(&self) -> nix::Result<FileStat> {
        fstatat(&self.directory, self.name.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Renames something of the same file system to this place; without `replace` only when the place is free.
    pub(super) fn take(&self, from: &OwnedFd, name: &[u8], replace: bool) -> nix::Result<()> {
        take(from.as_fd(), name, self.directory.as_fd(), &self.name, replace)
    }
}

fn take(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, name: &[u8], replace: bool) -> nix::Result<()> {
    if replace {
        return renameat(from, old, to, name);
    }
    let there = || fstatat(to, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    match renameat2(from, old, to, name, RenameFlags::RENAME_NOREPLACE) {
        // The file system does not know the flag: check first, as programs did before the flag existed.
        Err(Errno::EINVAL | Errno::ENOSYS) if there() == Err(Errno::ENOENT) => renameat(from, old, to, name),
        Err(Errno::EINVAL | Errno::ENOSYS) if there().is_ok() => Err(Errno::EEXIST),
        outcome => outcome,
    }
}

/// Splits a path into directory and last name; a path without a name is refused.
fn split(path: &[u8]) -> nix::Result<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/').ok_or(Errno::EISDIR)? + 1;
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = (&path[..start], &path[start..end]);
    if matches!(name, b"." | b"..") {
        return Err(Errno::EISDIR);
    }
    Ok((if directory.is_empty() { b"." } else { directory }, name))
}

/// Opens a path's directory. With `follow`, symbolic links at the end are followed, up to a name that is not a link.
pub(super) fn locate(path: &[u8], follow: bool) -> nix::Result<Place> {
    let mut rest = path.to_vec();
    let mut base: Option<OwnedFd> = None;
    for _ in 0..MAX_LINKS {
        let (directory, name) = split(&rest)?;
        let directory = match &base {
            Some(base) => openat(base, directory, DIRECTORY, Mode::empty())?,
            None => openat(AT_FDCWD, directory, DIRECTORY, Mode::empty())?,
        };
        let target = if follow { readlinkat(&directory, name) } else { Err(Errno::EINVAL) };
        match target {
            Ok(target) => {
                // The kernel judges it: others' links in a folder like `/tmp` may be closed to this user.
                if fstatat(&directory, name, AtFlags::empty()) == Err(Errno::EACCES) {
                    return Err(Errno::EACCES);
                }
                rest = target.into_vec();
                base = Some(directory);
            }
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(Place { directory, name: name.to_vec() }),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ELOOP)
}

/// Makes the missing directories of a path, as `mkdir -p` does.
pub(super) fn make_directories(path: &[u8]) -> Result<(), Stop> {
    let mode = Mode::from_bits_truncate(0o777);
    for end in (1..=path.len()).filter(|end| *end == path.len() || path[*end] == b'/') {
        match mkdirat(AT_FDCWD, &path[..end], mode) {
            Ok(()) | Err(Errno::EEXIST | Errno::EISDIR) => {}
            // In `/proc` or on a read-only `/` nothing can be made, but the directories may exist.
            Err(Errno::EACCES | Errno::EPERM | Errno::EROFS)
                if openat(AT_FDCWD, &path[..end], DIRECTORY, Mode::empty()).is_ok() => {}
            refused => refused.at(&path[..end])?,
        }
    }
    openat(AT_FDCWD, path, DIRECTORY, Mode::empty()).at(path).map(drop)
}

/// Makes the missing directories above a path.
pub(super) fn make_parents(path: &[u8]) -> Result<(), Stop> {
    let (directory, _) = split(path).at(path)?;
    make_directories(directory)
}

/// A file or directory under a temporary name; dropping it removes it unless it was moved into its place.
#[derive(Debug)]
pub(super) struct Temporary<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: Vec<u8>,
}

impl<'a> Temporary<'a> {
    /// Picks a fresh name in `directory`, for which `make` creates something that did not exist; `added` says that its
    /// place is free.
    pub(super) fn new<T>(
        directory: BorrowedFd<'a>,
        added: bool,
        make: impl Fn(BorrowedFd<'a>, &[u8]) -> nix::Result<T>,
    ) -> nix::Result<(Self, T)> {
        let mut tries = 0;
        loop {
            let name = fresh_name(added, tries);
            match make(directory, &name) {
                Err(Errno::EEXIST) if tries < MAX_TRIES => tries += 1,
                made => return made.map(|made| (Self { directory, name }, made)),
            }
        }
    }

    /// Picks a fresh name for something that the caller makes at once.
    pub(super) fn unmade(directory: BorrowedFd<'a>, added: bool) -> Self {
        Self { directory, name: fresh_name(added, 0) }
    }

    /// Makes an empty file that only its owner may use.
    pub(super) fn file(directory: BorrowedFd<'a>, added: bool) -> nix::Result<(Self, File)> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o600);
        Self::new(directory, added, |directory, name| openat(directory, name, flags, mode).map(File::from))
    }

    /// Moves it to `name`, in the same directory.
    pub(super) fn move_to(self, name: &[u8], replace: bool) -> nix::Result<()> {
        take(self.directory, &self.name, self.directory, name, replace)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        let name = self.name.as_slice();
        if matches!(
            unlinkat(self.directory, name, UnlinkatFlags::NoRemoveDir),
            Err(Errno::EISDIR | Errno::EPERM)
        ) {
            // What cannot be removed has been changed by another process, and is left to it.
            let _ = walk::remove_tree(self.directory, name, &mut Vec::new());
        }
    }
}

/// A name that need not be secret: a process that takes it first only makes the caller pick another one.
fn fresh_name(added: bool, salt: u32) -> Vec<u8> {
    let prefix = if added { ADDED } else { TEMPORARY };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{prefix}{:x}-{:x}-{salt:x}", std::process::id(), now.as_nanos()).into_bytes()
}

/// Describes a place that has just been filled.
pub(super) fn described(place: &Place, path: &[u8]) -> Result<FileInfo, Stop> {
    let stat = place.stat().at(path)?;
    Ok(info_with_target(path, &stat, &place.directory, place.name.as_slice()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        let found = |path: &'static str| split(path.as_bytes());
        assert_eq!(found("/a/b"), Ok((&b"/a/"[..], &b"b"[..])));
        assert_eq!(found("/a/b//"), Ok((&b"/a/"[..], &b"b"[..])));
        assert_eq!(found("a"), Ok((&b"."[..], &b"a"[..])));
        assert_eq!(found("/a"), Ok((&b"/"[..], &b"a"[..])));
        for path in ["", "/", "//", ".", "a/..", "/a/./"] {
            assert_eq!(found(path), Err(Errno::EISDIR), "{path}");
        }
    }

    proptest! {
        #[test]
        fn a_name_never_leaves_its_directory(path in prop::collection::vec(prop::sample::select(&b"/.a"[..]), 0..12)) {
            if let Ok((_, name)) = split(&path) {
                prop_assert!(!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..");
            }
        }
    }

    #[test]
    fn what_does_not_settle_is_gone_and_a_taken_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).into_os_string().into_vec();
        std::fs::write(folder.path().join("old"), "old").unwrap();
        let place = locate(&path("old"), true).unwrap();
        let (temporary, _) = Temporary::file(place.directory.as_fd(), false).unwrap();
        drop(temporary);
        let (temporary, _) = Temporary::file(place.directory.as_fd(), false).unwrap();
        assert_eq!(temporary.move_to(&place.name, false), Err(Errno::EEXIST));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let (temporary, _) = Temporary::file(place.directory.as_fd(), false).unwrap();
        temporary.move_to(&place.name, true).unwrap();
        assert_eq!(std::fs::read(folder.path().join("old")).unwrap(), b"");
    }

    #[test]
    fn links_at_the_end_are_looked_through_and_loops_end() {
        let folder = tempfile::tempdir().unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        link("d/new", "relative");
        link("relative", "twice");
        link("loop", "loop");
        let path = |name: &str| folder.path().join(name).into_os_string().into_vec();
        assert_eq!(locate(&path("twice"), true).unwrap().name, b"new");
        assert_eq!(locate(&path("twice"), false).unwrap().name, b"twice");
        assert_eq!(locate(&path("loop"), true).unwrap_err(), Errno::ELOOP);
    }
}
