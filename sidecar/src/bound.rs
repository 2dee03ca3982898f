//! Whether the sandbox has the late settings that its owner was promised.

use std::sync::{Arc, OnceLock};

use wire::{Code, Problem};

/// Calls that run nothing of the user's, and the one that binds.
const OPEN: [&str; 3] =
    ["/rollbox.agent.v1.Agent/Configure", "/rollbox.agent.v1.Agent/Health", "/rollbox.agent.v1.Agent/Usage"];

/// The digest of the late settings, once they are bound. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Bound(Arc<OnceLock<String>>);

impl Bound {
    /// Whether settings are bound already, so that binding these again changes nothing. A call without a digest comes
    /// from a control plane that repeats its own binding.
    ///
    /// # Errors
    /// `conflict`: other settings are bound.
    pub fn knows(&self, digest: &str) -> Result<bool, Problem> {
        match self.0.get() {
            None => Ok(false),
            Some(bound) if digest.is_empty() || bound == digest => Ok(true),
            Some(_) => Err(Problem::new(Code::Conflict, "the sandbox has other settings already")),
        }
    }

    /// Marks settings as bound; only the first call has an effect.
    pub fn set(&self, digest: String) {
        let _ = self.0.set(digest);
    }

    /// Whether a call may be made whose token promises the settings with this digest.
    ///
    /// # Errors
    /// `settings_pending`: these settings are not bound.
    pub fn allows(&self, path: &str, promised: Option<&str>) -> Result<(), Problem> {
        match promised {
            Some(promised) if self.0.get().map(String::as_str) != Some(promised) && !OPEN.contains(&path) => {
                let detail = "the environment, working directory and user of the sandbox are not bound yet";
                Err(Problem::new(Code::SettingsPending, detail))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "/rollbox.agent.v1.Agent/Exec";

    #[test]
    fn promised_settings_have_to_be_bound_before_anything_runs() {
        let bound = Bound::default();
        assert!(bound.allows(EXEC, None).is_ok(), "nothing was promised");
        assert_eq!(bound.allows(EXEC, Some("d1")).unwrap_err().code, Code::SettingsPending);
        for path in OPEN {
            assert!(bound.allows(path, Some("d1")).is_ok());
        }
        bound.set("d1".into());
        assert!(bound.allows(EXEC, Some("d1")).is_ok() && bound.allows(EXEC, None).is_ok());
        assert_eq!(bound.allows(EXEC, Some("d2")).unwrap_err().code, Code::SettingsPending);
    }

    #[test]
    fn only_the_same_settings_may_be_bound_again() {
        let bound = Bound::default();
        assert_eq!(bound.knows("d1"), Ok(false));
        bound.set("d1".into());
        bound.set("d2".into());
        assert_eq!((bound.knows("d1"), bound.knows("")), (Ok(true), Ok(true)));
        assert_eq!(bound.knows("d2").unwrap_err().code, Code::Conflict);
    }
}
