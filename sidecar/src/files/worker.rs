//! A file worker: runs one operation and sends its answer.

use nix::sys::prctl;
use wire::Problem;

use super::errors::Stop;
use super::frames::Job;
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
    let answered = pipes::job().and_then(done).or_else(|stop| match stop {
        Stop::Problem(problem) => pipes::fail(&cut(problem)),
        Stop::Abandoned => Ok(()),
    });
    // There is no receiver for a failure to send the answer.
    drop(answered);
}

fn done(job: Job) -> Result<(), Stop> {
    match job {
        Job::Read(request) => pipes::end(&read::read(&request)?),
        Job::Write(request) => pipes::end(&write::write(&request)?),
        Job::Stat(request) => pipes::end(&list::stat(&request)?),
        Job::List(request) => list::list(&request),
        Job::MakeDirectory(request) => pipes::end(&change::make_directory(&request)?),
        Job::Move(request) => pipes::end(&change::rename(&request)?),
        Job::Copy(request) => pipes::end(&copy::copy(&request)?),
        Job::Remove(request) => pipes::end(&change::remove(&request)?),
        Job::ReadArchive(request) => pipes::end(&archive::read(&request)?),
        Job::WriteArchive(request) => pipes::end(&archive::write(&request)?),
        Job::Watch(request) => watch::watch(&request),
    }
}

/// Cuts the detail so that the problem fits into a frame, however long a name is.
fn cut(problem: Problem) -> Problem {
    const MAX_CHARS: usize = 1024;
    Problem { detail: problem.detail.chars().take(MAX_CHARS).collect(), ..problem }
}
