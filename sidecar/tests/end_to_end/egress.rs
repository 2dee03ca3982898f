//! The relay: connections of programs to the proxy's port. The sidecar's loopback is the test's here, so the test is the
//! program, and egress as well.

mod answers;
mod attacks;
mod inside;
mod itself;
mod link;
mod transfers;

use link::{Installed, read_to_end};
