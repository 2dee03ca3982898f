//! Waits for a child until it runs its program, and tells a child that is held from one that gets no processor or disk
//! time.
//!
//! A command of the sandbox can stop a child (SIGSTOP), or hold the file that it executes (a lease): that is the
//! caller's own doing. A node whose processors or disk are overloaded delays a child just as much, and that is the
//! platform's fault. The kernel shows the difference: a held child is stopped or sleeps, one that gets no time is
//! runnable or waits for a disk.

use std::fs;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A child that has not executed its program is checked at this interval. The limits count checks and not seconds: a
/// spawner that gets no processor time itself gives its child more.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Checks at which a child may be held (3 s), in a row or not.
const HELD_LOOKS: u32 = 30;
/// Checks that a child may take which is not held (30 s); meanwhile the spawner does nothing else.
const MOST_LOOKS: u32 = 300;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// The child has closed its end: it runs its program, or has failed.
    Closed,
    /// A process in the sandbox holds it.
    Held,
    /// It gets no processor or disk time from the node.
    Slow,
}

impl Waited {
    /// The errno for a child that has reported none itself.
    pub(super) const fn errno(self) -> Errno {
        match self {
            Self::Slow => Errno::ETIME,
            Self::Closed | Self::Held => Errno::ETIMEDOUT,
        }
    }
}

/// Waits until the other end of `pipe`, which process `pid` has, is closed.
pub(super) fn given_back(pipe: &PipeReader, pid: i32) -> Waited {
    // This allocates and opens only in the spawner; a child on the spawner's memory uses neither.
    watched(pipe, LOOK_EVERY, || {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_held(&stat))
    })
}

fn watched(pipe: &PipeReader, every: Duration, held_now: impl Fn() -> bool) -> Waited {
    let mut held = 0;
    for _ in 0..MOST_LOOKS {
        if closed_within(pipe, every) {
            return Waited::Closed;
        }
        held += u32::from(held_now());
        if held == HELD_LOOKS {
            return Waited::Held;
        }
    }
    Waited::Slow
}

/// Whether a line of `/proc/PID/stat` has the state "stopped", "traced" or "sleeping". Its second field is a name in
/// parentheses that any program may choose.
fn is_held(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't', 'S']))
}

/// Whether the other end of `pipe` is closed within `within`. The child may change `errno` at any time, so the cause
/// of a failed poll is not read.
pub(super) fn closed_within(pipe: &PipeReader, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        if poll(&mut watched, timeout).is_ok_and(|found| found > 0) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io;

    use super::*;

    /// Waits for a child that has the state `held` at each check, and that closes its end at the check with the number
    /// `through_at`.
    fn wait(through_at: u32, held: impl Fn(u32) -> bool) -> (Waited, u32) {
        let (pipe, end) = io::pipe().unwrap();
        let (looks, end) = (Cell::new(0), RefCell::new(Some(end)));
        let waited = watched(&pipe, Duration::from_millis(1), || {
            looks.set(looks.get() + 1);
            if looks.get() == through_at {
                end.borrow_mut().take();
            }
            held(looks.get())
        });
        (waited, looks.get())
    }

    #[test]
    fn a_child_that_gets_no_time_is_waited_for_longer_than_one_that_is_held() {
        assert_eq!(wait(HELD_LOOKS + 10, |_| false), (Waited::Closed, HELD_LOOKS + 10));
        assert_eq!(wait(u32::MAX, |_| false), (Waited::Slow, MOST_LOOKS));
        assert_eq!(wait(u32::MAX, |_| true), (Waited::Held, HELD_LOOKS));
        // A child that is continued now and then, so that it never stays stopped for long.
        assert_eq!(wait(u32::MAX, |look| look % 2 == 0), (Waited::Held, 2 * HELD_LOOKS));
    }

    #[test]
    fn a_child_that_is_through_is_not_looked_at() {
        let (pipe, end) = io::pipe().unwrap();
        drop(end);
        assert_eq!(watched(&pipe, LOOK_EVERY, || panic!("the child was checked")), Waited::Closed);
    }

    #[test]
    fn what_the_kernel_says_of_a_child() {
        for (state, held) in [("R", false), ("D", false), ("Z", false), ("S", true), ("T", true), ("t", true)]
        {
            assert_eq!(is_held(&format!("7 (a) T (b) {state} 1 7 7 0")), held, "{state}");
        }
        assert!(!is_held(""));
        assert!(is_held(&fs::read_to_string("/proc/self/stat").unwrap().replace(") R ", ") S ")));
    }
}
