//! Strict parsing of queries: every name is known and given once, every value is well formed. Values are bytes, so
//! that a path can be whatever a file system allows.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use wire::{Code, Problem};

use super::fields;

/// PATH_MAX without its NUL (path_resolution(7)): a longer path can never work.
const MAX_PATH_BYTES: usize = 4095;

/// Permission bits with set-user-ID, set-group-ID and sticky (chmod(2)).
const MAX_MODE: u32 = 0o7777;

/// A parsed query: names and values.
#[derive(Debug)]
pub(crate) struct Query {
    values: BTreeMap<String, Vec<u8>>,
}

impl Query {
    /// Parses a query that may only have `names`, in form encoding: `+` is a space, `%` and two digits are a byte.
    ///
    /// # Errors
    /// `invalid_argument`, naming the parameter that is unknown, given twice, or malformed.
    pub(crate) fn read(query: Option<&str>, names: &[&str]) -> Result<Self, Problem> {
        let mut values = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !names.contains(&name) {
                let detail = format!("the query has {name:?}, there is only {}", names.join(", "));
                return Err(fields::invalid(name, detail));
            }
            let value = decoded(value).ok_or_else(|| {
                fields::invalid(name, format!("{name} is {value:?}: a % needs two hexadecimal digits"))
            })?;
            if values.insert(name.to_owned(), value).is_some() {
                return Err(fields::invalid(name, format!("{name} is given twice")));
            }
        }
        Ok(Self { values })
    }

    /// Returns a path, which is required.
    ///
    /// # Errors
    /// `invalid_argument`: it is absent, empty, too long (`details.reason`) or has a NUL.
    pub(crate) fn path(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let path = self.values.get(name).filter(|path| !path.is_empty());
        let path =
            path.ok_or_else(|| fields::invalid(name, format!("{name} is missing; it names a file")))?;
        if path.len() > MAX_PATH_BYTES {
            let detail = format!("{name} has {} bytes, at most {MAX_PATH_BYTES} are a path", path.len());
            return Err(fields::invalid(name, detail).with("reason", "name_too_long"));
        }
        match path.contains(&0) {
            true => Err(fields::invalid(name, format!("{name} has a NUL"))),
            false => Ok(path.clone()),
        }
    }

    /// Returns a user (or owner) in the form that execs have; empty when absent.
    pub(crate) fn user(&self, name: &str) -> Result<String, Problem> {
        let user = self.text(name)?.unwrap_or_default();
        fields::check_user(name, user)?;
        Ok(user.to_owned())
    }

    /// Returns `true` or `false`; `default` when absent.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        match self.text(name)? {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => {
                Err(fields::invalid(name, format!("{name} is {other:?}, it must be true or false")))
            }
        }
    }

    /// Returns a number of any size.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        let wrong = || {
            fields::invalid(name, format!("{name} is {text:?}, it must be a whole number of 0 to 2^64 - 1"))
        };
        number.ok_or_else(wrong).map(Some)
    }

    /// Returns a time in Unix milliseconds, of before or after 1970.
    pub(crate) fn time_ms(&self, name: &str) -> Result<Option<i64>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let time = text.parse().ok().filter(|_| !text.starts_with('+'));
        let wrong = || fields::invalid(name, format!("{name} is {text:?}, it must be Unix milliseconds"));
        time.ok_or_else(wrong).map(Some)
    }

    /// Returns a number within a range; `default` when absent.
    pub(crate) fn count(&self, name: &str, default: u32, range: RangeInclusive<u64>) -> Result<u32, Problem> {
        match self.number(name)? {
            None => Ok(default),
            Some(number) => fields::small(name, number, range),
        }
    }

    /// Returns permission bits, given in octal digits.
    pub(crate) fn mode(&self, name: &str) -> Result<Option<u32>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let digits = text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= MAX_MODE);
        let wrong =
            || fields::invalid(name, format!("{name} is {text:?}, it must be octal, 0 to {MAX_MODE:o}"));
        mode.ok_or_else(wrong).map(Some)
    }

    /// Returns a SHA-256, given in 64 hexadecimal digits; empty when absent.
    pub(crate) fn digest(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(Vec::new()) };
        let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => hex(*high, *low),
            _ => None,
        });
        let digest: Option<Vec<u8>> = pairs.collect();
        let wrong = || fields::invalid(name, format!("{name} is {text:?}, it must be 64 hexadecimal digits"));
        digest.filter(|digest| digest.len() == 32).ok_or_else(wrong)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        let Some(value) = self.values.get(name) else { return Ok(None) };
        let wrong =
            |_| Problem::new(Code::InvalidArgument, format!("{name} is not UTF-8")).with("field", name);
        std::str::from_utf8(value).map(Some).map_err(wrong)
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(rest.next()?, rest.next()?)?,
            other => other,
        });
    }
    Some(bytes)
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Names of parameters, one for each form of value.
#[cfg(any(test, fuzzing))]
const NAMES: [&str; 6] = ["path", "mode", "user", "flag", "number", "digest"];

/// Any query is refused with `invalid_argument`, or has values that a sidecar takes, and is the same when its values are
/// written anew.
#[cfg(any(test, fuzzing))]
pub fn check_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let query = match Query::read(Some(text), &NAMES) {
        Ok(query) => query,
        Err(problem) => return assert_eq!(problem.code, Code::InvalidArgument, "{problem}"),
    };
    if let Ok(path) = query.path("path") {
        assert!((1..=MAX_PATH_BYTES).contains(&path.len()) && !path.contains(&0), "{path:?}");
    }
    let _ = (query.flag("flag", false), query.number("number"));
    assert!(query.user("user").map_or(true, |user| !user.contains('\0')));
    assert!(query.mode("mode").map_or(true, |mode| mode.is_none_or(|mode| mode <= MAX_MODE)));
    assert!(query.digest("digest").map_or(true, |digest| matches!(digest.len(), 0 | 32)));
    let escaped = |value: &[u8]| value.iter().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let pairs = query.values.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
    let written = pairs.collect::<Vec<_>>().join("&");
    assert_eq!(Query::read(Some(&written), &NAMES).map(|again| again.values), Ok(query.values));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(query: &str) -> Result<Query, Problem> {
        Query::read(Some(query), &NAMES)
    }

    #[test]
    fn a_path_is_any_bytes_but_nul() {
        assert_eq!(read("path=/a%2Fb+c%ff").unwrap().path("path").unwrap(), b"/a/b c\xff");
        for query in ["", "path=", "path", "path=a%00b", &format!("path={}", "a".repeat(4096))] {
            assert_eq!(read(query).unwrap().path("path").unwrap_err().code, Code::InvalidArgument, "{query}");
        }
        assert!(read(&format!("path={}", "a".repeat(4095))).unwrap().path("path").is_ok());
    }

    #[test]
    fn a_query_is_read_strictly() {
        for (query, field) in
            [("other=1", "other"), ("path=a&path=b", "path"), ("path=%4", "path"), ("path=%zz", "path")]
        {
            assert_eq!(read(query).unwrap_err().details["field"], field, "{query}");
        }
    }

    #[test]
    fn values_have_their_forms() {
        let query = read("mode=0644&flag=true&number=18446744073709551615&user=1000:1000").unwrap();
        assert_eq!(query.mode("mode").unwrap(), Some(0o644));
        assert!(query.flag("flag", false).unwrap());
        assert_eq!(query.number("number").unwrap(), Some(u64::MAX));
        assert_eq!(read("number=-1500").unwrap().time_ms("number").unwrap(), Some(-1500));
        assert!(read("number=%2b1").unwrap().time_ms("number").is_err());
        assert_eq!(query.user("user").unwrap(), "1000:1000");
        let digest = read(&format!("digest={}", "aB".repeat(32))).unwrap().digest("digest").unwrap();
        assert_eq!(digest, [0xab; 32]);
        for (query, field) in [
            ("mode=9", "mode"),
            ("mode=", "mode"),
            ("mode=10000", "mode"),
            ("mode=%2b7", "mode"),
            ("flag=1", "flag"),
            ("number=-1", "number"),
            ("number=%2b1", "number"),
            ("number=18446744073709551616", "number"),
            ("digest=ab", "digest"),
            ("digest=abc", "digest"),
            ("user=a%00", "user"),
            ("user=%ff", "user"),
        ] {
            let query = read(query).unwrap();
            let refused = [
                query.mode("mode").err(),
                query.flag("flag", false).err(),
                query.number("number").err(),
                query.digest("digest").err(),
                query.user("user").err(),
            ];
            let problem = refused.into_iter().flatten().next().unwrap();
            assert_eq!(problem.details["field"], field);
        }
    }

    proptest! {
        #[test]
        fn no_query_breaks_it(query in "((path|mode|user|number|digest|x)=(%[0-9a-g]{2}|[+a0])*&){0,4}") {
            check_query(query.as_bytes());
        }

        #[test]
        fn any_bytes_come_through_percent_encoded(path in prop::collection::vec(1u8.., 1..100)) {
            let encoded: String = path.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(read(&format!("path={encoded}")).unwrap().path("path").unwrap(), path);
        }
    }
}
