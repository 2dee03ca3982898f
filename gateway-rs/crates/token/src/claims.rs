use std::sync::Arc;

use serde::Deserialize;
use wire::{Code, Problem};

/// The issuer of tokens: the only accepted `iss`.
pub(crate) const ISSUER: &str = "rollbox";

/// The claims of a verified token. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The one sandbox that the token is for (`sub`).
    pub sandbox_id: Arc<str>,
    /// The owner whose quota the sandbox counts against (`own`).
    pub owner: Arc<str>,
    /// What the token allows (`scp`), for example `exec`.
    pub scopes: Arc<[String]>,
    /// Unix time in seconds from which on the token is refused (`exp`).
    pub expires_at_s: u64,
    /// Digest of the late settings that the sandbox must have before it is used (`set`); `None`: it may have any.
    pub settings: Option<Arc<str>>,
}

impl Claims {
    /// Whether the token may be used for `scope` on the sandbox `sandbox_id`.
    ///
    /// # Errors
    /// `permission_denied` naming both sandboxes, or the missing scope.
    pub fn allow(&self, sandbox_id: &str, scope: &str) -> Result<(), Problem> {
        if &*self.sandbox_id != sandbox_id {
            let detail = format!("the token is for sandbox {}, not for {sandbox_id}", self.sandbox_id);
            let problem = Problem::new(Code::PermissionDenied, detail).with("reason", "wrong_token");
            return Err(problem.with("token_sandbox_id", &self.sandbox_id));
        }
        if !self.scopes.iter().any(|held| held == scope) {
            let detail = format!("the token lacks scope {scope}; it has {}", self.scopes.join(", "));
            return Err(Problem::new(Code::PermissionDenied, detail).with("scope", scope));
        }
        Ok(())
    }

    pub(crate) fn check_expiry(&self, now_unix_s: u64) -> Result<(), Problem> {
        if now_unix_s < self.expires_at_s {
            return Ok(());
        }
        let detail = format!("the token expired {} s ago", now_unix_s - self.expires_at_s);
        Err(Problem::new(Code::Unauthenticated, detail).with("expired_at_s", self.expires_at_s))
    }
}

/// The payload as the token has it. Unknown claims are ignored, as RFC 7519 section 4 asks.
#[derive(Deserialize)]
pub(crate) struct Payload {
    pub(crate) iss: String,
    pub(crate) sub: String,
    pub(crate) own: String,
    pub(crate) scp: Vec<String>,
    pub(crate) exp: u64,
    #[serde(default)]
    pub(crate) set: Option<String>,
}

impl Payload {
    pub(crate) fn into_claims(self) -> Claims {
        Claims {
            sandbox_id: self.sub.into(),
            owner: self.own.into(),
            scopes: self.scp.into(),
            expires_at_s: self.exp,
            settings: self.set.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            sandbox_id: "sb-1".into(),
            owner: "alice".into(),
            scopes: vec!["exec".to_owned()].into(),
            expires_at_s: 100,
            settings: None,
        }
    }

    #[test]
    fn own_sandbox_and_scope_are_allowed() {
        assert_eq!(claims().allow("sb-1", "exec"), Ok(()));
    }

    #[test]
    fn another_sandbox_is_denied_by_name() {
        let problem = claims().allow("sb-2", "exec").unwrap_err();
        assert_eq!(problem.code, Code::PermissionDenied);
        assert_eq!(problem.detail, "the token is for sandbox sb-1, not for sb-2");
    }

    #[test]
    fn a_missing_scope_is_denied_by_name() {
        let problem = claims().allow("sb-1", "ready").unwrap_err();
        assert_eq!(problem.code, Code::PermissionDenied);
        assert_eq!(problem.details["scope"], "ready");
    }

    #[test]
    fn the_second_of_expiry_is_already_too_late() {
        assert_eq!(claims().check_expiry(99), Ok(()));
        assert_eq!(claims().check_expiry(100).unwrap_err().code, Code::Unauthenticated);
    }
}
