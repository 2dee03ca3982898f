//! A file worker: runs one operation after the other and sends their answers.

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::stat;
use wire::Problem;

use super::errors::Stop;
use super::frames::{Job, Kind};
use super::{archive, change, copy, list, pipes, read, watch, write};

/// What a forked child of the spawner does instead of executing a program. It has its final user and groups, its pipes
/// as standard input and output, no descriptors beyond the standard ones, and all signals blocked that can be: only
/// SIGKILL keeps it from cleaning up.
///
/// A panic ends the process, as it must: the caller of this function is the spawner's own loop.
pub extern "C" fn run() {
    // Other processes of the same user must not look into this one: its memory is a copy of the spawner's. A kernel
    // that refuses the call has not made it readable.
    let _ = prctl::set_dumpable(false);
    let _ = prctl::set_name(c"rollbox-files");
    let conditions = Conditions::now();
    while pipes::wait()
        && conditions == Conditions::now()
        && let Ok(job) = pipes::job()
        && stays_after(&job)
    {}
}

/// What may change while a worker waits, so that a fresh one would do otherwise: then it ends without having read its job.
#[derive(Debug, PartialEq, Eq)]
struct Conditions {
    /// Processes of the same user may lower those under which a call then fails.
    limits: [Option<(u64, u64)>; 5],
    /// Of the files that say who is in which group.
    databases: [Option<(u64, i64, i64, i64)>; 2],
}

impl Conditions {
    fn now() -> Self {
        use Resource::{RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE};
        let seen =
            |path: &str| stat(path).ok().map(|it| (it.st_ino, it.st_size, it.st_ctime, it.st_ctime_nsec));
        Self {
            limits: [RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE]
                .map(|one| getrlimit(one).ok()),
            databases: ["/etc/passwd", "/etc/group"].map(seen),
        }
    }
}

/// Runs an operation; returns whether the next one may come over the same pipes.
fn stays_after(job: &Job) -> bool {
    let (last, answered) = match done(job) {
        Err(Stop::Problem(problem)) => (Kind::Problem, pipes::fail(&cut(problem))),
        ended => (Kind::End, ended),
    };
    answered.is_ok() && job.leaves_empty(last)
}

fn done(job: &Job) -> Result<(), Stop> {
    match job {
        Job::Read(request) => read::read(request),
        Job::Write(request) => pipes::end(&write::write(request)?),
        Job::Stat(request) => pipes::end(&list::stat(request)?),
        Job::List(request) => list::list(request),
        Job::MakeDirectory(request) => pipes::end(&change::make_directory(request)?),
        Job::Move(request) => pipes::end(&change::rename(request)?),
        Job::Copy(request) => pipes::end(&copy::copy(request)?),
        Job::Remove(request) => pipes::end(&change::remove(request)?),
        Job::ReadArchive(request) => archive::read(request),
        Job::WriteArchive(request) => pipes::end(&archive::write(request)?),
        Job::Watch(request) => watch::watch(request),
    }
}

/// Cuts the detail so that the problem fits into a frame, however long a name is.
fn cut(problem: Problem) -> Problem {
    const MAX_CHARS: usize = 1024;
    Problem { detail: problem.detail.chars().take(MAX_CHARS).collect(), ..problem }
}
