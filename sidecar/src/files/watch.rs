//! Reports changes below a path until the caller is gone.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::fstatat;
use wire::Code;
use wire::agent::{Change, WatchEvent, WatchRequest};

use super::errors::{At, Stop, refusal};
use super::info::is_directory;
use super::pipes::{self, Items, abandoned};
use super::place::{ADDED, TEMPORARY};
use super::walk::{self, Moment, Next, walk};

/// Directories that one call watches; each costs kernel memory that all users of the machine share.
const MAX_DIRECTORIES: usize = 16_384;
/// How long to wait for the second event of a move: the kernel queues the two events one after the other.
const PAIR_MS: u8 = 20;
/// During many moves every read may end within one; after so many reads the events are reported anyway.
const MOST_READS: usize = 16;
const WANTED: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

/// Reports what changes at or below a path. Ends when the caller is gone, or the path itself.
pub(super) fn watch(request: &WatchRequest) -> Result<(), Stop> {
    let path = request.path.as_slice();
    let stat = fstatat(AT_FDCWD, path, AtFlags::empty()).at(path)?;
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).at(path)?;
    let mut watch = if is_directory(&stat) {
        let mut watch = Watch::new(inotify, path, None, request.recursive);
        watch.add(path, WANTED)?;
        watch.below(path, false)?;
        watch
    } else {
        // A file that is replaced is another inode, so the watch is on its directory, which stays.
        let (directory, name) = around(path);
        let mut watch = Watch::new(inotify, &directory, Some(name), false);
        watch.add(&directory, WANTED)?;
        watch
    };
    watch.tell(Change::Watching, path, b"")?;
    watch.items.flush()?;
    watch.run()?;
    pipes::end(&WatchEvent::default())
}

fn around(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (path[..=slash].to_vec(), path[slash + 1..].to_vec()),
        None => (b".".to_vec(), path.to_vec()),
    }
}

struct Watch {
    inotify: Inotify,
    root: Vec<u8>,
    /// The one name that is reported, when a file is watched.
    only: Option<Vec<u8>>,
    recursive: bool,
    directories: BTreeMap<WatchDescriptor, Vec<u8>>,
    items: Items,
    last: Option<(Change, Vec<u8>)>,
    /// What a file worker has brought to its name, until its end of writing comes: that was before it had the name.
    brought: Option<Vec<u8>>,
}

impl Watch {
    fn new(inotify: Inotify, root: &[u8], only: Option<Vec<u8>>, recursive: bool) -> Self {
        let (directories, items) = (BTreeMap::new(), Items::default());
        Self { inotify, root: root.to_vec(), only, recursive, directories, items, last: None, brought: None }
    }

    fn add(&mut self, path: &[u8], flags: AddWatchFlags) -> Result<(), Stop> {
        if self.directories.len() >= MAX_DIRECTORIES {
            let sentence = format!("has more than {MAX_DIRECTORIES} directories below it");
            return Err(refusal(Code::InvalidArgument, &self.root, "too_many_directories", &sentence).into());
        }
        match self.inotify.add_watch(path, flags) {
            Ok(descriptor) => {
                self.directories.insert(descriptor, path.to_vec());
                Ok(())
            }
            Err(Errno::ENOSPC) => {
                let sentence = "cannot be watched: the kernel's limit of watches is reached";
                Err(refusal(Code::NoSpace, path, "watches", sentence).into())
            }
            refused => refused.at(path).map(drop),
        }
    }

    /// Watches the directories below one; with `telling`, everything in them is reported as created.
    fn below(&mut self, path: &[u8], telling: bool) -> Result<(), Stop> {
        if !self.recursive {
            return Ok(());
        }
        let directory = match walk::open(AT_FDCWD.as_fd(), path, path == self.root) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
            opened => opened.at(path)?,
        };
        walk(directory, &mut path.to_vec(), &mut |moment, entry| {
            if moment == Moment::Left {
                return Ok(Next::Pass);
            }
            if telling {
                self.tell(Change::Created, entry.path, b"")?;
            }
            if is_directory(&entry.stat) {
                self.enter(entry.path)?;
            }
            Ok(Next::Enter)
        })
        .map(drop)
    }

    /// Watches one more directory, unless it has disappeared.
    fn enter(&mut self, path: &[u8]) -> Result<(), Stop> {
        match self.add(path, WANTED | AddWatchFlags::IN_DONT_FOLLOW) {
            Err(Stop::Problem(problem)) if problem.code == Code::FileNotFound => Ok(()),
            added => added,
        }
    }

    fn run(&mut self) -> Result<(), Stop> {
        loop {
            self.wait()?;
            self.last = None;
            let mut events = self.events()?.into_iter().peekable();
            while let Some(event) = events.next() {
                let pair = |next: &InotifyEvent| {
                    event.mask.contains(AddWatchFlags::IN_MOVED_FROM)
                        && next.mask.contains(AddWatchFlags::IN_MOVED_TO)
                        && next.cookie == event.cookie
                };
                let other = events.next_if(pair);
                if self.handle(&event, other.as_ref())? {
                    return self.items.flush();
                }
            }
            self.items.flush()?;
        }
    }

    /// Reads all events that have happened, and waits for the second half of a move at the end.
    fn events(&self) -> Result<Vec<InotifyEvent>, Stop> {
        let mut events = self.read()?;
        for _ in 0..MOST_READS {
            if !events.last().is_some_and(|last| last.mask.contains(AddWatchFlags::IN_MOVED_FROM)) {
                break;
            }
            let mut watched = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut watched, PollTimeout::from(PAIR_MS));
            let mut more = self.read()?;
            if more.is_empty() {
                break;
            }
            events.append(&mut more);
        }
        Ok(events)
    }

    fn read(&self) -> Result<Vec<InotifyEvent>, Stop> {
        match self.inotify.read_events() {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Vec::new()),
            read => read.at(&self.root),
        }
    }

    /// Waits for an event in the sandbox, or until the sidecar closes its end.
    fn wait(&self) -> Result<(), Stop> {
        let input = io::stdin();
        let mut watched = [
            PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
            PollFd::new(input.as_fd(), PollFlags::empty()),
        ];
        let _ = poll(&mut watched, PollTimeout::NONE);
        if abandoned() { Err(Stop::Abandoned) } else { Ok(()) }
    }

    /// Reports one event. Returns true when it was the last one, because the watched path is gone.
    fn handle(&mut self, event: &InotifyEvent, moved_to: Option<&InotifyEvent>) -> Result<bool, Stop> {
        let mask = event.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            let root = self.root.clone();
            self.tell(Change::Overflowed, &root, b"")?;
            // Directories that were made meanwhile are unknown; watch them from here on.
            self.below(&root, false)?;
            return Ok(false);
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            self.directories.remove(&event.wd);
            return Ok(false);
        }
        if mask.intersects(
            AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_UNMOUNT,
        ) {
            let root = self.directories.get(&event.wd).is_some_and(|path| *path == self.root);
            if root {
                let root = self.root.clone();
                self.tell(Change::Removed, &root, b"")?;
            }
            return Ok(root);
        }
        let Some(path) = self.path(event) else {
            // The source of the move is not watched, so only the target is reported.
            return moved_to.map_or(Ok(false), |event| self.handle(event, None));
        };
        if let Some(to) = moved_to.and_then(|event| self.path(event)) {
            self.moved(&path, &to, mask.contains(AddWatchFlags::IN_ISDIR))?;
        } else {
            if mask == AddWatchFlags::IN_CLOSE_WRITE
                && self.brought.take_if(|brought| *brought == path).is_some()
            {
                return Ok(false);
            }
            self.changed(&path, mask)?;
        }
        Ok(false)
    }

    fn changed(&mut self, path: &[u8], mask: AddWatchFlags) -> Result<(), Stop> {
        let directory = mask.contains(AddWatchFlags::IN_ISDIR);
        let change = if mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO) {
            Change::Created
        } else if mask.intersects(AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE) {
            Change::Written
        } else if mask.intersects(AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM) {
            Change::Removed
        } else if mask.contains(AddWatchFlags::IN_ATTRIB) {
            Change::Attributes
        } else {
            return Ok(());
        };
        self.tell(change, path, b"")?;
        if change == Change::Removed && directory {
            self.forget(path);
        }
        if change == Change::Created && directory && self.recursive {
            self.enter(path)?;
            self.below(path, true)?;
        }
        Ok(())
    }

    fn moved(&mut self, from: &[u8], to: &[u8], directory: bool) -> Result<(), Stop> {
        if is_temporary(from) {
            // A write or a copy by a file worker, which was made beside its place.
            if directory {
                return self.changed(to, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ISDIR);
            }
            if starts(from, ADDED) {
                self.tell(Change::Created, to, b"")?;
            }
            self.brought = Some(to.to_vec());
            return self.tell(Change::Written, to, b"");
        }
        self.tell(Change::Moved, to, from)?;
        for path in self.directories.values_mut() {
            if let Some(rest) = inside(path, from) {
                *path = [to, rest].concat();
            }
        }
        Ok(())
    }

    /// Stops watching a directory that was removed or moved away.
    fn forget(&mut self, path: &[u8]) {
        let gone: Vec<WatchDescriptor> = self
            .directories
            .iter()
            .filter_map(|(descriptor, watched)| inside(watched, path).map(|_| *descriptor))
            .collect();
        for descriptor in gone {
            // The kernel has dropped the watch of a removed directory already.
            let _ = self.inotify.rm_watch(descriptor);
            self.directories.remove(&descriptor);
        }
    }

    fn path(&self, event: &InotifyEvent) -> Option<Vec<u8>> {
        let directory = self.directories.get(&event.wd)?;
        let Some(name) = event.name.as_deref().map(OsStrExt::as_bytes) else {
            return Some(directory.clone());
        };
        // A file worker brings its content from a temporary name.
        if self.only.as_ref().is_some_and(|only| only != name) && !is_temporary(name) {
            return None;
        }
        let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
        Some([directory, slash, name].concat())
    }

    /// Reports an event once when it comes twice in a row, and never one of a temporary name.
    fn tell(&mut self, change: Change, path: &[u8], from: &[u8]) -> Result<(), Stop> {
        let told = Some((change, path.to_vec()));
        if is_temporary(path) || self.last == told {
            return Ok(());
        }
        self.last = told;
        self.items.push(&WatchEvent { change: change.into(), path: path.to_vec(), from: from.to_vec() })
    }
}

fn is_temporary(path: &[u8]) -> bool {
    starts(path, TEMPORARY)
}

/// Whether the last name of a path has a prefix.
fn starts(path: &[u8], prefix: &str) -> bool {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path).starts_with(prefix.as_bytes())
}

/// What follows `outer` in `path`, when `path` is `outer` or lies below it.
fn inside<'a>(path: &'a [u8], outer: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(outer).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_watched_through_its_directory() {
        assert_eq!(around(b"/a/b"), (b"/a/".to_vec(), b"b".to_vec()));
        assert_eq!(around(b"b"), (b".".to_vec(), b"b".to_vec()));
    }

    #[test]
    fn only_whole_names_are_inside() {
        assert_eq!(inside(b"/a/b/c", b"/a/b"), Some(&b"/c"[..]));
        assert_eq!(inside(b"/a/b", b"/a/b"), Some(&b""[..]));
        assert_eq!(inside(b"/a/bc", b"/a/b"), None);
    }
}
