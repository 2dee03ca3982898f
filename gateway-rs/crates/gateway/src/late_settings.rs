//! Creates with late settings (environment, working directory, user): the gateway takes them out of the request, has
//! the control plane create the sandbox, and binds them at its sidecar before it answers. So they reach no control
//! plane, no store and no pod. The control plane gets a keyed digest, by which it compares repetitions of a create; it
//! mints tokens that promise this digest, and a sidecar refuses calls with such a token until it is bound.
//!
//! - `rules`: which settings are valid. `object`: a JSON object that gives no name twice. `request`: a body without its
//!   settings. All pure.
//! - `create`: a create from its arrival to its answer, with replacements of sandboxes that cannot be bound.
//! - `bind`: one sandbox; `report`: what the control plane is told about one that cannot be bound.

mod bind;
mod create;
mod object;
mod report;
mod request;
mod rules;

pub(crate) use create::{Creates, create, create_members};
#[cfg(any(test, fuzzing))]
pub use request::check_split;
