//! The rules that fields of bodies and queries have in common, and the problems of those that break them.

use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::extract::rejection::PathRejection;
use wire::{Code, Problem};

/// A user and a group name of 255 characters each, and a colon.
const MAX_USER_BYTES: usize = 511;

/// `invalid_argument` for one field.
pub(crate) fn invalid(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidArgument, detail).with("field", field)
}

/// `invalid_argument` for a path whose parts cannot be read.
pub(crate) fn unreadable_path(rejection: PathRejection) -> Problem {
    invalid("path", format!("the path cannot be read: {rejection}"))
}

/// `payload_too_large` for one field.
pub(crate) fn too_large(field: &str, bytes: usize, limit: usize) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("{field} has {bytes} bytes, at most {limit} are allowed"))
        .with("field", field)
        .with("limit_bytes", limit)
}

/// Returns the number, which must be within its range, or 0 where it is absent (as on the wire to the sidecar).
pub(crate) fn in_range(field: &str, number: Option<u64>, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    match number {
        Some(number) => bounded(field, number, range),
        None => Ok(0),
    }
}

/// The same for a required number whose range fits 32 bits.
pub(crate) fn small(field: &str, number: u64, range: RangeInclusive<u64>) -> Result<u32, Problem> {
    bounded(field, number, range).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn bounded(field: &str, number: u64, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    if range.contains(&number) {
        return Ok(number);
    }
    let (least, most) = range.into_inner();
    Err(invalid(field, format!("{field} is {number}, it must be {least} to {most}")))
}

/// Checks a user, which is a name or uid, optionally with ":group", for its length and for NULs.
pub(crate) fn check_user(field: &str, user: &str) -> Result<(), Problem> {
    check_text(field, user, MAX_USER_BYTES)
}

/// Checks the length of a text, and that it has no NUL.
pub(crate) fn check_text(field: impl Display, text: &str, most: usize) -> Result<(), Problem> {
    if text.len() > most {
        return Err(too_large(&field.to_string(), text.len(), most));
    }
    check_no_nul(field, text)
}

/// Refuses a NUL. `field` is formatted only when there is one.
pub(crate) fn check_no_nul(field: impl Display, text: &str) -> Result<(), Problem> {
    match text.bytes().position(|b| b == 0) {
        Some(at) => Err(invalid(&field.to_string(), format!("{field} has a NUL at byte {at}"))),
        None => Ok(()),
    }
}
