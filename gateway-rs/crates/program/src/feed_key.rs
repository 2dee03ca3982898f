//! The key that a feed of the control plane asks for.

use std::fmt;

use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use crate::settings::{InvalidSetting, Read, invalid, required};

/// Shows the control plane that a part of the platform asks for a feed, and not code in a sandbox.
#[derive(Clone)]
pub struct FeedKey(MetadataValue<Ascii>);

/// Fewest characters: a key of letters and digits alone then has 190 bits.
const MIN_CHARS: usize = 32;

impl FeedKey {
    /// Reads the file that `variable` names.
    ///
    /// # Errors
    /// The variable is not set, or the file cannot be read, or is no key.
    pub fn read(read: Read<'_>, variable: &'static str) -> Result<Self, InvalidSetting> {
        let path = required(read, variable)?;
        let refused = |rule: String| invalid(variable, Some(&path), rule);
        let text = std::fs::read_to_string(&path)
            .map_err(|e| refused(format!("must be a file that can be read; {e}")))?;
        let rule =
            format!("must be a file of one line of at least {MIN_CHARS} printable characters without spaces");
        Self::new(text.trim_ascii_end()).ok_or_else(|| refused(rule))
    }

    /// Makes a key of its text; `None`: it is too short, or has other characters.
    pub fn new(text: &str) -> Option<Self> {
        let printable = text.len() >= MIN_CHARS && text.bytes().all(|byte| byte.is_ascii_graphic());
        let mut value: MetadataValue<Ascii> = printable.then(|| format!("Bearer {text}").parse().ok())??;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// A request that has it.
    pub fn signed<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.0.clone());
        request
    }
}

impl fmt::Debug for FeedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FeedKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdefghijklmnopqrstuv";

    #[test]
    fn a_request_has_the_key_and_no_log_shows_it() {
        let request = FeedKey::new(TEXT).unwrap().signed(());
        assert_eq!(request.metadata().get("authorization").unwrap(), &format!("Bearer {TEXT}"));
        assert!(!format!("{request:?} {:?}", FeedKey::new(TEXT)).contains(TEXT));
    }

    #[test]
    fn what_is_short_or_not_printable_is_no_key() {
        for text in
            ["", &TEXT[1..], &format!("{TEXT} {TEXT}"), &format!("{TEXT}\n{TEXT}"), &format!("{TEXT}\u{e4}")]
        {
            assert!(FeedKey::new(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_is_missing_or_no_key_is_told_with_its_name() {
        let refused = |path: Option<&str>| {
            FeedKey::read(&|_| path.map(str::to_owned), "KEY_FILE").unwrap_err().to_string()
        };
        assert!(refused(None).starts_with("KEY_FILE is not set"), "{}", refused(None));
        assert!(refused(Some("/no/such/file")).contains("must be a file that can be read"));
        assert!(refused(Some("/dev/null")).contains("at least 32 printable characters"));
    }
}
