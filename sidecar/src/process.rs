//! One command, from its start to its record.
//!
//! A `Process` (`state`) is shared by the tokio task that supervises it (`supervise`) and by every call that waits,
//! attaches, writes or cancels. It stays as the record when the command has ended.
//!
//! - `pipe_end`, `terminal`: the sidecar's end of a pipe, and of a terminal. `stdin`, `streams`: what goes over them.
//! - `readers`: the readers that an output waits for; `reader`: one of them.
//! - `small_watch`: a value that tasks wait for.

mod pipe_end;
mod reader;
mod readers;
mod small_watch;
mod state;
mod stdin;
mod stream;
mod streams;
pub mod supervise;
mod terminal;

pub use reader::Reader;
pub use readers::Position;
pub use state::{Cause, Ended, Phase, Process, Waiter};
pub use stream::Stream;
