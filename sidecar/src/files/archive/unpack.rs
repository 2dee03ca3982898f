//! Unpacks a tar stream into files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, UtimensatFlags, fchmod, fstatat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use tar::EntryType;
use wire::Code;
use wire::agent::{ArchiveWritten, WriteArchiveRequest};

use super::destination::{Destination, replace};
use super::names::parts;
use super::stream::{Entry, Stream};
use crate::files::errors::{At, Stop, refusal, shown};
use crate::files::frames::MAX_PAYLOAD_BYTES;
use crate::files::info::kind;
use crate::files::pipes::Incoming;
use crate::files::place::make_directories;
use crate::files::rewrite::{Rewrite, Wanted};

/// Names of skipped entries that the answer lists at most.
const MAX_SKIPPED: usize = 100;
/// Bytes of names of directories that wait for their mode and time until their contents are there; beyond it the oldest
/// ones get them early.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Permission bits that are kept. Setuid and setgid are dropped, since they would lend the unpacker's identity.
const KEPT_MODE: u32 = 0o1777;
const NEW_FILE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Unpacks a tar stream. Stops at the first entry that cannot be unpacked; the files before it stay.
pub(in crate::files) fn write(request: &WriteArchiveRequest) -> Result<ArchiveWritten, Stop> {
    let path = request.path.as_slice();
    if request.parents {
        make_directories(path)?;
    }
    let root = openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .at(path)?;
    let mut stream = Stream::new(Incoming::new());
    let mut unpacking = Unpacking::new(root, request.in_place);
    let taken = unpacking.take_all(&mut stream);
    // Also after a refusal: to a second attempt the directories are there already.
    let settled = unpacking.settle_all();
    taken.and(settled).map(|()| unpacking.done)
}

/// A directory that gets its mode and time after its contents.
struct Waiting {
    name: Vec<u8>,
    mode: u32,
    modified: TimeSpec,
}

struct Unpacking {
    destination: Destination,
    in_place: bool,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    buffer: Vec<u8>,
    done: ArchiveWritten,
}

impl Unpacking {
    fn new(root: OwnedFd, in_place: bool) -> Self {
        Self {
            destination: Destination::new(root),
            in_place,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            buffer: vec![0; MAX_PAYLOAD_BYTES],
            done: ArchiveWritten::default(),
        }
    }

    fn take_all(&mut self, stream: &mut Stream<Incoming>) -> Result<(), Stop> {
        while let Some(entry) = stream.next()? {
            self.take(&entry, stream)?;
        }
        Ok(())
    }

    fn take(&mut self, entry: &Entry, stream: &mut Stream<Incoming>) -> Result<(), Stop> {
        let name = entry.name.as_slice();
        let all = checked(name)?;
        // The destination itself keeps its mode and time.
        let Some((last, above)) = all.split_last() else { return Ok(()) };
        match entry.kind {
            EntryType::Directory => self.directory(entry, above, last)?,
            EntryType::Symlink => {
                let directory = self.destination.open(above, name, true)?;
                replace(directory, last, || symlinkat(entry.link.as_slice(), directory, *last)).at(name)?;
                set_time(directory, last, time(entry)).at(name)?;
            }
            EntryType::Link => self.link(entry, above, last)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let directory = self.destination.open(above, name, true)?;
                self.done.size_bytes +=
                    file(directory, last, entry, stream, &mut self.buffer, self.in_place)?;
            }
            _ => {
                if self.done.skipped.len() < MAX_SKIPPED {
                    self.done.skipped.push(shown(name));
                }
                return Ok(());
            }
        }
        self.done.count += 1;
        Ok(())
    }

    fn directory(&mut self, entry: &Entry, above: &[&[u8]], last: &[u8]) -> Result<(), Stop> {
        let name = entry.name.as_slice();
        let directory = self.destination.open(above, name, true)?;
        let mode = Mode::from_bits_truncate(entry.mode & KEPT_MODE) | Mode::S_IRWXU;
        let made = replace(directory, last, || mkdirat(directory, last, mode));
        match made {
            Ok(()) => {}
            // The directory exists, as the entry wants: it keeps what it has, unless it was made for what it contains.
            Err(Errno::EISDIR) => {
                let stat = fstatat(directory, last, AtFlags::AT_SYMLINK_NOFOLLOW).at(name)?;
                if !self.destination.take_made(&stat) {
                    return Ok(());
                }
            }
            refused => refused.at(name)?,
        }
        self.waiting_bytes += name.len() + size_of::<Waiting>();
        self.waiting.push_back(Waiting { name: name.to_vec(), mode: entry.mode, modified: time(entry) });
        while self.waiting_bytes > MAX_WAITING_BYTES
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.settle(&oldest)?;
        }
        Ok(())
    }

    fn settle(&mut self, waiting: &Waiting) -> Result<(), Stop> {
        let name = waiting.name.as_slice();
        self.waiting_bytes -= name.len() + size_of::<Waiting>();
        let all = checked(name)?;
        let Some((last, above)) = all.split_last() else { return Ok(()) };
        let flags =
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let above = match self.destination.open(above, name, false) {
            Err(Stop::Problem(problem)) if problem.code == Code::FileNotFound => return Ok(()),
            opened => opened?,
        };
        let directory = match openat(above, *last, flags, Mode::empty()) {
            // A process of the sandbox removed the directory or put something else there; leave that alone.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
            opened => opened.at(name)?,
        };
        fchmod(&directory, Mode::from_bits_truncate(waiting.mode & KEPT_MODE)).at(name)?;
        futimens(&directory, &waiting.modified, &waiting.modified).at(name)
    }

    fn link(&mut self, entry: &Entry, above: &[&[u8]], last: &[u8]) -> Result<(), Stop> {
        let name = entry.name.as_slice();
        let target = checked(&entry.link)?;
        let Some((target_name, target_above)) = target.split_last() else {
            return Err(Errno::EISDIR).at(name);
        };
        let from = self.destination.open(target_above, name, false)?.try_clone_to_owned().at(name)?;
        let directory = self.destination.open(above, name, true)?;
        let make = || linkat(&from, *target_name, directory, last, AtFlags::empty());
        if target == [above, &[last]].concat() {
            return Ok(());
        }
        replace(directory, last, make).at(name)
    }

    /// Sets the modes and times that wait, the deepest first: a directory whose mode forbids entering it comes after
    /// its contents.
    fn settle_all(&mut self) -> Result<(), Stop> {
        while let Some(waiting) = self.waiting.pop_back() {
            self.settle(&waiting)?;
        }
        Ok(())
    }
}

fn checked(name: &[u8]) -> Result<Vec<&[u8]>, Stop> {
    parts(name).map_err(|refused| {
        let (reason, sentence) = refused.reason();
        refusal(Code::InvalidArgument, name, reason, sentence).into()
    })
}

fn file(
    directory: BorrowedFd<'_>,
    last: &[u8],
    entry: &Entry,
    stream: &mut Stream<Incoming>,
    buffer: &mut [u8],
    in_place: bool,
) -> Result<u64, Stop> {
    let name = entry.name.as_slice();
    let make = || openat(directory, last, NEW_FILE, Mode::from_bits_truncate(0o600));
    let file = match make() {
        Ok(file) => File::from(file),
        Err(refused) => {
            if let Some(old) = old(directory, last) {
                let rewrite = Rewrite::begin(directory, last, name, Some(old), true, in_place)?;
                let size = fill(rewrite.content(), entry, stream, buffer)?;
                let wanted = Wanted { modified: Some(time(entry)), ..Wanted::default() };
                return rewrite.commit(wanted).map(|_| size);
            }
            let made = if refused == Errno::EEXIST { replace(directory, last, make) } else { Err(refused) };
            File::from(made.at(name)?)
        }
    };
    let filled = fill(&file, entry, stream, buffer).and_then(|size| {
        fchmod(&file, Mode::from_bits_truncate(entry.mode & KEPT_MODE)).at(name)?;
        futimens(&file, &time(entry), &time(entry)).at(name)?;
        Ok(size)
    });
    if filled.is_err() {
        // A partial file is worse than none.
        let _ = unlinkat(directory, last, UnlinkatFlags::NoRemoveDir);
    }
    filled
}

/// The stat of the regular file that is there.
fn old(directory: BorrowedFd<'_>, name: &[u8]) -> Option<FileStat> {
    let found = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    (kind(&found) == SFlag::S_IFREG).then_some(found)
}

/// Writes an entry's data and leaves its holes; returns the size of the data.
fn fill(
    mut file: &File,
    entry: &Entry,
    stream: &mut Stream<Incoming>,
    buffer: &mut [u8],
) -> Result<u64, Stop> {
    let name = entry.name.as_slice();
    let stored = stream.left();
    let Some(sparse) = &entry.sparse else {
        pour(file, stored, name, stream, buffer)?;
        return Ok(stored);
    };
    for (offset, length) in &sparse.pieces {
        file.seek(SeekFrom::Start(*offset)).at(name)?;
        pour(file, *length, name, stream, buffer)?;
    }
    file.set_len(sparse.size).at(name)?;
    Ok(stored)
}

fn pour(
    mut file: &File,
    length: u64,
    name: &[u8],
    stream: &mut Stream<Incoming>,
    buffer: &mut [u8],
) -> Result<(), Stop> {
    let mut left = length;
    while left > 0 {
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = stream.read(&mut buffer[..wanted])?;
        if count == 0 {
            return Ok(());
        }
        file.write_all(&buffer[..count]).at(name)?;
        left -= count as u64;
    }
    Ok(())
}

fn time(entry: &Entry) -> TimeSpec {
    TimeSpec::new(entry.modified.0, entry.modified.1.into())
}

fn set_time(directory: BorrowedFd<'_>, name: &[u8], time: TimeSpec) -> nix::Result<()> {
    utimensat(directory, name, &time, &time, UtimensatFlags::NoFollowSymlink)
}
