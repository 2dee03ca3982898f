//! Files of the sandbox: what a worker does there.
//!
//! Every call on files is done by a **worker**: a child of the spawner, forked without exec, that has taken the caller's
//! identity exactly as a command does. So the kernel resolves every path and judges every permission as for the user's
//! own processes. The sidecar only moves frames between the worker's two pipes and the call (`server::files`).
//!
//! # Layout
//! - `frames`: the words on the pipes; `call`: the sidecar's ends of them, `pipes`: the worker's.
//! - `worker`: from a job to its answer.
//! - `errors`: what the kernel said, in the contract's words.
//! - `place`: names in directories, files that are not there yet; `walk`: a tree, without following links.
//! - `read`, `write`, `change` (make, move, remove), `copy`, `list`, `watch`: the jobs.
//! - `archive`: tar streams, out and in.

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
mod read;
mod walk;
mod watch;
pub mod worker;
mod write;
