//! Operations on the sandbox's files, run by file workers inside the sandbox.
//!
//! Every call on files is served by a **file worker**: a child of the spawner, forked without exec, that takes on the
//! caller's user, groups and limits exactly as a command does. So the kernel resolves every path and checks every
//! permission as for the user's own processes. The sidecar only moves frames between the worker's two pipes and the
//! call (`server::files`). A worker stays for the next call of its user.
//!
//! # Layout
//! - `frames`: the protocol on the pipes; `pipes`: the worker's ends of them.
//! - `call`: what a call asks and is answered; `starting`, `running`: its worker as a process.
//! - `warm`: the workers that stay for the next call; `places`: how many there may be.
//! - `worker`: runs one operation after the other and sends their answers.
//! - `errors`: maps errnos to the contract's error codes.
//! - `place`: names in open directories, temporary files; `walk`: visits a tree without following links.
//! - `rewrite`: new content for a name, whatever is there already.
//! - `read`, `write`, `change` (make, move, remove), `copy`, `list`, `watch`: the operations.
//! - `archive`: packs and unpacks tar streams.

mod archive;
pub mod call;
mod change;
mod copy;
mod errors;
pub mod frames;
mod info;
mod list;
mod pipes;
mod place;
mod places;
mod read;
mod rewrite;
mod running;
mod starting;
mod walk;
mod warm;
mod watch;
pub mod worker;
mod write;

#[cfg(any(test, fuzzing))]
pub use archive::check_entries;
