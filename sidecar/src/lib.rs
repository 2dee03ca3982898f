//! The sidecar of a sandbox: enters the target's namespaces, runs commands there and reports their results.
//!
//! It is two processes. The **sidecar** (tokio, one thread) serves gRPC, keeps output and records, and enforces
//! deadlines. The **spawner** is forked from it before the runtime exists: it enters the target's namespaces, becomes
//! PID 1 of a nested PID namespace and starts commands with clone + exec, on orders that it reads from a socket. User
//! code runs in the nested namespace, with the target's privileges and file system: it cannot see the sidecar, and sees
//! the spawner only as its PID 1.
//!
//! # Layout
//! - `settings`, `log`: the configuration, and log lines for the container engine.
//! - `install`: copies the target's binary to where a pod's target expects it.
//! - `itself`: the sandbox's own name and addresses, in the notations that programs use.
//! - `target`: finds the target's process and reads what commands inherit from it.
//! - `spawner`: everything in the spawner's process, and `spawner::link`, the sidecar's end of its socket.
//! - `process`, `ring`, `records`, `oom`: a command's life cycle, its output, the records of execs, OOM kills.
//! - `files`: operations on the sandbox's files, by file workers inside it.
//! - `ports`: connections to servers that listen in the sandbox.
//! - `relay`: the process that takes the connections of the sandbox's programs to the network.
//! - `leg`: connections that carry the bytes of large transfers beside a call.
//! - `problem`: problems as they are sent.
//! - `bound`: which late settings the sandbox has; calls are refused until it has those that were promised.
//! - `request`, `auth`, `server`: validation of requests, authentication, the gRPC service.
//! - `usage`: the sandbox's resource usage; `memory_files`: what of its memory files have; `disk_limit`: ends a sandbox
//!   that has written more than it may.
//! - `readiness`: the readiness push to the control plane; `run`: the sidecar's life, from start to shutdown.
//! - `sys`, `spawner::clone`: the only unsafe code.

pub mod auth;
pub mod bound;
pub mod disk_limit;
pub mod files;
pub mod install;
pub mod itself;
pub mod leg;
pub mod log;
pub mod memory_files;
mod mounts;
pub mod oom;
pub mod ports;
pub mod problem;
pub mod process;
pub mod readiness;
pub mod records;
pub mod relay;
pub mod request;
pub mod ring;
pub mod run;
pub mod server;
pub mod settings;
pub mod spawner;
pub mod sys;
pub mod target;
pub mod usage;
