//! A worker: from its job to its answer.

use nix::sys::prctl;
use wire::Problem;

use super::errors::Stop;
use super::frames::Job;
use super::{archive, change, copy, list, pipes, read, watch, write};

/// What a forked child of the spawner does instead of executing a program. It has its final identity, its pipes as
/// standard input and output, no other descriptor, and all signals blocked that can be: nothing but the sidecar's kill
/// keeps it from cleaning up.
///
/// A panic ends the process, as it must: behind this function lies the spawner's own loop.
pub extern "C" fn run() {
    // Not for its users to look into: its memory was the spawner's. A kernel that refuses has not made it readable.
    let _ = prctl::set_dumpable(false);
    let _ = prctl::set_name(c"rollbox-files");
    let answered = pipes::job().and_then(done).or_else(|stop| match stop {
        Stop::Problem(problem) => pipes::fail(&cut(problem)),
        Stop::Abandoned => Ok(()),
    });
    // Nobody is there to hear of a failure to tell a failure.
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

/// Within a frame, whatever a name holds.
fn cut(problem: Problem) -> Problem {
    const MAX_CHARS: usize = 1024;
    Problem { detail: problem.detail.chars().take(MAX_CHARS).collect(), ..problem }
}
