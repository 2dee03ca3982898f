//! Readers of settings from environment variables. Each checks its value, and says what is wrong with it.

use std::str::FromStr;
use std::time::Duration;

use resolve::Address;

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value}: it {rule}")]
pub struct InvalidSetting {
    /// The variable.
    pub variable: &'static str,
    /// What it is set to, quoted, or `not set`.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

/// Upper end of every duration: a day in milliseconds. A larger value is a mistaken unit.
const MAX_DURATION_MS: u64 = 24 * 60 * 60 * 1000;

/// Returns the value of a variable by its name; `None` when it is unset.
pub type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The refusal of a variable's value (`None`: it is not set); `rule` says what it must be.
pub fn invalid(variable: &'static str, value: Option<&str>, rule: impl Into<String>) -> InvalidSetting {
    let value = value.map_or_else(|| "not set".to_owned(), |value| format!("{value:?}"));
    InvalidSetting { variable, value, rule: rule.into() }
}

/// A text that must be set.
///
/// # Errors
/// It is not.
pub fn required(read: Read<'_>, variable: &'static str) -> Result<String, InvalidSetting> {
    read(variable).ok_or_else(|| invalid(variable, None, "is required"))
}

/// A value in its own notation; `rule` is told where it cannot be parsed. Without a default it must be set.
///
/// # Errors
/// It cannot be parsed, or is not set.
pub fn parsed<T: FromStr>(
    read: Read<'_>,
    variable: &'static str,
    default: Option<&str>,
    rule: &str,
) -> Result<T, InvalidSetting> {
    let value = match (read(variable), default) {
        (Some(value), _) => value,
        (None, Some(default)) => default.to_owned(),
        (None, None) => return Err(invalid(variable, None, rule)),
    };
    value.parse().map_err(|_| invalid(variable, Some(&value), rule))
}

/// An integer from `least` to `most`.
///
/// # Errors
/// It is another one, or none.
pub fn number(
    read: Read<'_>,
    variable: &'static str,
    default: u64,
    least: u64,
    most: u64,
) -> Result<u64, InvalidSetting> {
    let Some(value) = read(variable) else { return Ok(default) };
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| invalid(variable, Some(&value), format!("must be an integer of {least} to {most}")))
}

/// A number that `number` has checked to be at most 2^30, as a count.
pub fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A time in milliseconds, at least one and at most a day.
///
/// # Errors
/// It is another one, or no integer.
pub fn duration(read: Read<'_>, variable: &'static str, default_ms: u64) -> Result<Duration, InvalidSetting> {
    number(read, variable, default_ms, 1, MAX_DURATION_MS).map(Duration::from_millis)
}

/// The address of another part, which must be set.
///
/// # Errors
/// It is not set, or no address.
pub fn address(read: Read<'_>, variable: &'static str) -> Result<Address, InvalidSetting> {
    let value = required(read, variable)?;
    value.parse().map_err(|e: resolve::InvalidAddress| invalid(variable, Some(&value), e.to_string()))
}
