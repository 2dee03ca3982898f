//! Decisions: what a sandbox may reach. Pure: no clock, no I/O.
//!
//! - `host`: what a program asks for, in one notation. `blocked`: addresses that are never reached.
//! - `index`: which package index a request to the package cache is for. `rules`: which rule names a host or an address. `decide`: a policy as a whole, and its answer.
//!
//! The order of a decision: the rule for the name, then (after the name was resolved elsewhere) the address itself. A
//! refusal by `deny` wins over what `allow` names, whichever is more special.

mod blocked;
mod decide;
mod host;
mod index;
mod rules;

pub use blocked::Blocked;
pub use decide::{Limits, Policy, Refusal, Tls};
pub use host::{Host, InvalidHost, Target};
pub use index::{PACKAGES, index};
pub use rules::BrokenRule;
