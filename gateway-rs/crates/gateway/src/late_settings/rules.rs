//! The rules for late settings, the same as the control plane's for those that it is given (`SandboxSpec`).

use std::collections::BTreeMap;

use wire::agent::ConfigureRequest;
use wire::{Code, Problem};

const MAX_ENV_BYTES: usize = 256 * 1024;
const MAX_NAME_CHARS: usize = 256;
const MAX_CWD_CHARS: usize = 4096;
const MAX_USER_CHARS: usize = 256;

/// What a create sets in its sandbox for all commands. Empty: the image's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Late {
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: String,
    pub(super) user: String,
    /// Whether a missing directory is made: what the creator writes next is there.
    pub(super) make_cwd: bool,
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.env.is_empty() && self.cwd.is_empty() && self.user.is_empty() && !self.make_cwd
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// `invalid_argument`, naming the field below `prefix`. The detail repeats no value of a variable.
    pub(super) fn check(&self, prefix: &str) -> Result<(), Problem> {
        self.env
            .iter()
            .try_for_each(|(name, value)| variable(name, value))
            .map_err(refused(prefix, "env"))?;
        size(&self.env).map_err(refused(prefix, "env"))?;
        directory(&self.cwd).map_err(refused(prefix, "cwd"))?;
        if self.make_cwd && self.cwd.is_empty() {
            return Err(refused(prefix, "make_cwd")("there is no cwd to make".to_owned()));
        }
        user(&self.user).map_err(refused(prefix, "user"))
    }

    /// All that distinguishes them from others, in an order that is always the same.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let variables = self.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        let made = self.make_cwd.then_some("make_cwd");
        [self.cwd.as_str(), self.user.as_str()].into_iter().chain(variables).chain(made)
    }

    /// The call that binds them.
    pub(super) fn to_request(&self, digest: &str) -> ConfigureRequest {
        ConfigureRequest {
            env: self.env.clone().into_iter().collect(),
            cwd: self.cwd.clone(),
            user: self.user.clone(),
            digest: digest.to_owned(),
            make_cwd: self.make_cwd,
        }
    }
}

pub(super) fn refused(prefix: &str, field: &str) -> impl Fn(String) -> Problem {
    let field = format!("{prefix}{field}");
    move |why| Problem::new(Code::InvalidArgument, format!("{field}: {why}")).with("field", &field)
}

fn variable(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.contains(['=', '\0']) {
        let shown: String = name.chars().take(64).collect();
        return Err(format!(
            "the name {shown:?} must have 1 to {MAX_NAME_CHARS} characters, none of them '=' or NUL"
        ));
    }
    if value.contains('\0') {
        return Err(format!("the value of {name:?} must not contain NUL"));
    }
    Ok(())
}

fn size(env: &BTreeMap<String, String>) -> Result<(), String> {
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if bytes > MAX_ENV_BYTES {
        return Err(format!("{bytes} bytes of names and values are more than {MAX_ENV_BYTES}"));
    }
    Ok(())
}

fn directory(path: &str) -> Result<(), String> {
    if path.chars().count() > MAX_CWD_CHARS {
        return Err(format!("it must have at most {MAX_CWD_CHARS} characters"));
    }
    if path.contains('\0') {
        return Err("it must not contain NUL".to_owned());
    }
    if !path.is_empty() && !path.starts_with('/') {
        let shown: String = path.chars().take(128).collect();
        return Err(format!("{shown:?} must be an absolute path"));
    }
    Ok(())
}

/// A name or number, optionally with a group behind a colon; empty for none.
fn user(user: &str) -> Result<(), String> {
    let legal = |part: &str| !part.contains(|c: char| c.is_whitespace() || c == ':' || c == '\0');
    let (name, group) = user.split_once(':').map_or((user, None), |(name, group)| (name, Some(group)));
    let fits = user.chars().count() <= MAX_USER_CHARS;
    if fits && legal(name) && group.is_none_or(|group| !group.is_empty() && legal(group)) {
        return Ok(());
    }
    Err(format!(
        "it must be a user, optionally with :GROUP, of at most {MAX_USER_CHARS} characters without spaces"
    ))
}
