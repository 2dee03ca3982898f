//! What every program of the platform is made of, whatever it is for: `rollbox-gateway` and `rollbox-egress`.
//!
//! - `process`: its life from outside: settings, log, runtime, signals, exit status.
//! - `settings`: readers of environment variables. `log`: lines on stderr. `memory`: settings of the allocator;
//!   `descriptors`: how many files may be open.
//! - `transport`: sockets to other parts. `grpc`: a gRPC connection over one. `filtered`: a stream some of whose
//!   operations are changed; `replayed`: one that was looked at.
//! - `feed_key`: what a feed of the control plane asks for.
//! - `metrics`: what generated tables of metrics are registered with.
//! - `hop_by_hop`: the headers that a proxy must not forward.

pub mod descriptors;
pub mod feed_key;
pub mod filtered;
pub mod grpc;
pub mod hop_by_hop;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod process;
pub mod replayed;
pub mod settings;
pub mod transport;
