//! The sidecar of a sandbox: enters the target's namespaces, runs commands there and answers for them.
//!
//! Two processes. The **sidecar** (tokio, one thread) speaks gRPC, keeps output and records, enforces deadlines. The
//! **spawner** is forked from it before the runtime exists: it moves into the target's namespaces, becomes PID 1 of
//! a nested PID namespace and starts commands with clone + exec, on orders that it reads from a socket. User code
//! sees neither: it lives in the nested namespace, with the target's powers and file system.
//!
//! # Layout
//! - `settings`, `log`: the rim towards the engine.
//! - `install`: puts the target's binary in place, in a pod.
//! - `target`: finds the target's process and reads what commands inherit from it.
//! - `spawner`: all that happens on the other side of the socket, and `spawner::link`, this side of it.
//! - `process`, `ring`, `records`, `oom`: a command's life, its output, and the memory of both.
//! - `files`: files of the sandbox, by workers in it.
//! - `ports`: connections to what listens in the sandbox.
//! - `leg`: bare bytes past a call, for what is much.
//! - `request`, `auth`, `server`: what callers may ask, who may, and the answers.
//! - `usage`: what the sandbox uses.
//! - `readiness`: tells the control plane; `run`: all of it in order.
//! - `sys`, `spawner::clone`: the only unsafe code.

pub mod auth;
pub mod files;
pub mod install;
pub mod leg;
pub mod log;
pub mod oom;
pub mod ports;
pub mod process;
pub mod readiness;
pub mod records;
pub mod request;
pub mod ring;
pub mod run;
pub mod server;
pub mod settings;
pub mod spawner;
pub mod sys;
pub mod target;
pub mod usage;
