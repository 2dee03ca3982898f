use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use wire::{Code, Problem};

use super::object::{Fields, Object};
use super::rules::{Late, refused};
use crate::keyed_digest::Key;

/// The field that stands for the settings in what the control plane gets.
const DIGEST: &str = "settings_digest";

/// Where a body has the fields of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The body is a sandbox.
    Whole,
    /// Its member `sandbox` is one.
    Member,
}

/// A create without its settings.
#[derive(Debug)]
pub(super) struct Split {
    /// The body for the control plane: with the digest instead of the settings.
    pub(super) body: Bytes,
    pub(super) late: Late,
    pub(super) digest: String,
}

impl Place {
    /// What names of fields begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Member => "sandbox.",
        }
    }
}

/// Takes the settings out of a body; `None` when it has none.
///
/// # Errors
/// `invalid_argument`: it is not a JSON object, gives a field twice, or the settings are not valid.
pub(super) fn split(body: &[u8], place: Place, key: &Key) -> Result<Option<Split>, Problem> {
    let outer: Object = serde_json::from_slice(body).map_err(|e| unreadable(&e))?;
    let mut outer = outer.fields("")?;
    let stripped = match place {
        Place::Whole => stripped(&mut outer, "", key)?,
        Place::Member => {
            // What is missing or no object is the control plane's to refuse.
            let Some(Ok(sandbox)) = outer.get("sandbox").map(|one| serde_json::from_str::<Object>(one.get()))
            else {
                return Ok(None);
            };
            let mut fields = sandbox.fields(place.prefix())?;
            let stripped = stripped(&mut fields, place.prefix(), key)?;
            outer.insert("sandbox".to_owned(), raw(&fields)?);
            stripped
        }
    };
    let Some((late, digest)) = stripped else { return Ok(None) };
    let body = serde_json::to_vec(&outer).map_err(|e| unreadable(&e))?.into();
    Ok(Some(Split { body, late, digest }))
}

/// Puts the digest in the place of the settings.
fn stripped(fields: &mut Fields, prefix: &str, key: &Key) -> Result<Option<(Late, String)>, Problem> {
    if fields.contains_key(DIGEST) {
        return Err(refused(prefix, DIGEST)("it is not a known field".to_owned()));
    }
    let late = Late {
        env: taken(fields, "env", "an object whose values are text", prefix)?,
        cwd: taken(fields, "cwd", "text", prefix)?,
        user: taken(fields, "user", "text", prefix)?,
        make_cwd: taken(fields, "make_cwd", "true or false", prefix)?,
    };
    if late.is_empty() {
        return Ok(None);
    }
    late.check(prefix)?;
    let digest = key.digest(late.texts());
    fields.insert(DIGEST.to_owned(), raw(&digest)?);
    Ok(Some((late, digest)))
}

/// The refusal of a value does not repeat it.
fn taken<T: DeserializeOwned + Default>(
    fields: &mut Fields,
    field: &str,
    what: &str,
    prefix: &str,
) -> Result<T, Problem> {
    match fields.remove(field) {
        None => Ok(T::default()),
        Some(value) => serde_json::from_str(value.get())
            .map_err(|_| refused(prefix, field)(format!("it must be {what}"))),
    }
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, Problem> {
    to_raw_value(value).map_err(|e| unreadable(&e))
}

/// Names the position, not what is there.
fn unreadable(error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    Problem::new(
        Code::InvalidArgument,
        format!("the body is not a JSON object: line {line}, column {column}"),
    )
    .with("line", line)
    .with("column", column)
}

/// Any body is refused with `invalid_argument`, or leaves none of its settings in what the control plane gets. Returns
/// what the sidecar gets.
#[cfg(any(test, fuzzing))]
pub fn check_split(body: &[u8], member: bool) -> Option<wire::agent::ConfigureRequest> {
    use serde_json::Value;
    let place = if member { Place::Member } else { Place::Whole };
    let key = Key::new(&[7; 32])?;
    let split = match split(body, place, &key) {
        Ok(split) => split,
        Err(problem) => {
            assert_eq!(problem.code, Code::InvalidArgument, "{problem}");
            return None;
        }
    };
    let told = split.as_ref().map_or(body, |split| &split.body);
    // Numbers beyond those of this crate's are passed on as they are written.
    let Ok(told) = serde_json::from_slice::<Value>(told) else { return None };
    let sandbox = if member { told.get("sandbox").unwrap_or(&Value::Null) } else { &told };
    let empty = |value: &Value| *value == serde_json::json!({}) || value == "" || *value == false;
    for field in ["env", "cwd", "user", "make_cwd"] {
        assert!(sandbox.get(field).is_none_or(empty), "{field} is left in {told}");
    }
    let split = split?;
    assert_eq!(sandbox[DIGEST], split.digest);
    assert_eq!(split.digest, key.digest(split.late.texts()));
    Some(split.late.to_request(&split.digest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn key() -> Key {
        Key::new(&[7; 32]).unwrap()
    }

    fn at(place: Place, body: &Value) -> Result<Option<Split>, Problem> {
        split(body.to_string().as_bytes(), place, &key())
    }

    fn read(split: &Split) -> Value {
        serde_json::from_slice(&split.body).unwrap()
    }

    #[test]
    fn a_digest_takes_the_place_of_the_settings() {
        let settings = json!({"env": {"SECRET": "hush"}, "cwd": "/work", "user": "bob"});
        let mut whole = settings.clone();
        whole["image"] = json!("i");
        let one = at(Place::Whole, &whole).unwrap().unwrap();
        assert_eq!(read(&one), json!({"image": "i", "settings_digest": one.digest}));
        assert_eq!((one.late.env["SECRET"].as_str(), one.late.cwd.as_str()), ("hush", "/work"));
        let group = at(Place::Member, &json!({"count": 2, "sandbox": whole})).unwrap().unwrap();
        assert_eq!(
            read(&group),
            json!({"count": 2, "sandbox": {"image": "i", "settings_digest": one.digest}})
        );
        assert_eq!(group.late, one.late);
    }

    #[test]
    fn a_directory_is_made_where_that_is_asked_for() {
        let split = |body: Value| at(Place::Whole, &body).unwrap().unwrap();
        let (made, plain) = (split(json!({"cwd": "/a", "make_cwd": true})), split(json!({"cwd": "/a"})));
        assert!(made.late.to_request("").make_cwd && !plain.late.to_request("").make_cwd);
        assert_ne!(made.digest, plain.digest);
        assert_eq!(read(&made), json!({"settings_digest": made.digest}));
    }

    #[test]
    fn a_body_without_settings_stays_as_it_is() {
        for body in
            [json!({"image": "i"}), json!({"image": "i", "env": {}, "cwd": "", "user": ""}), json!({})]
        {
            assert!(at(Place::Whole, &body).unwrap().is_none());
            assert!(at(Place::Member, &json!({"count": 1, "sandbox": body})).unwrap().is_none());
        }
        assert!(at(Place::Member, &json!({"count": 1})).unwrap().is_none());
        assert!(at(Place::Member, &json!({"count": 1, "sandbox": [{"env": {"A": "1"}}]})).unwrap().is_none());
    }

    #[test]
    fn numbers_are_left_as_they_are_written() {
        let body = r#"{"cwd": "/", "ttl_ms": 123456789012345678901234567890, "x": 1.0e3, "env": {"A": "2"}}"#;
        let split = split(body.as_bytes(), Place::Whole, &key()).unwrap().unwrap();
        let told = String::from_utf8(split.body.to_vec()).unwrap();
        assert!(told.contains("\"ttl_ms\":123456789012345678901234567890") && told.contains("\"x\":1.0e3"));
        assert_eq!(split.late.env["A"], "2");
    }

    #[test]
    fn what_is_not_valid_names_its_field_and_repeats_no_value() {
        let long = "x".repeat(256 * 1024);
        for (field, body) in [
            ("env", json!({"env": {"HUSH": 1}})),
            ("env", json!({"env": null})),
            ("env", json!({"env": ["HUSH"]})),
            ("env", json!({"env": {"A=": "HUSH"}})),
            ("env", json!({"env": {"": "HUSH"}})),
            ("env", json!({"env": {"A": "HUSH\0"}})),
            ("env", json!({"env": {"x".repeat(257): "HUSH"}})),
            ("env", json!({"env": {"A": long}})),
            ("cwd", json!({"cwd": "work"})),
            ("cwd", json!({"cwd": "/a\0"})),
            ("cwd", json!({"cwd": "/".repeat(4097)})),
            ("cwd", json!({"cwd": 7})),
            ("make_cwd", json!({"cwd": "/a", "make_cwd": "yes"})),
            ("make_cwd", json!({"make_cwd": true})),
            ("user", json!({"user": "a b"})),
            ("user", json!({"user": "a:"})),
            ("user", json!({"user": "a:b:c"})),
            ("user", json!({"user": "x".repeat(257)})),
            ("settings_digest", json!({"settings_digest": "0".repeat(64)})),
        ] {
            let refused = at(Place::Whole, &body).unwrap_err();
            assert_eq!((refused.code, refused.details["field"].as_str()), (Code::InvalidArgument, field));
            assert!(!refused.detail.contains("HUSH"), "{}", refused.detail);
            let refused = at(Place::Member, &json!({"sandbox": body})).unwrap_err();
            assert_eq!(refused.details["field"], format!("sandbox.{field}"));
        }
        for user in ["", "root", "1000", "a:b", ":staff"] {
            assert!(at(Place::Whole, &json!({"cwd": "/", "user": user})).is_ok(), "{user}");
        }
    }

    #[test]
    fn a_field_that_is_given_twice_is_refused_and_named() {
        for (field, body) in [
            ("env", r#"{"env": {"A": "HUSH"}, "image": "i", "env": {}}"#),
            ("env", r#"{"env": {}, "\u0065nv": {"A": "HUSH"}}"#),
            ("cwd", r#"{"env": {"A": "HUSH"}, "cwd": "/", "cwd": "/"}"#),
            ("image", r#"{"image": "HUSH", "image": "i", "ttl_ms": 1, "ttl_ms": 1}"#),
        ] {
            for (place, name, body) in [
                (Place::Whole, field.to_owned(), body.to_owned()),
                (Place::Member, format!("sandbox.{field}"), format!("{{\"sandbox\": {body}}}")),
            ] {
                let refused = split(body.as_bytes(), place, &key()).unwrap_err();
                assert_eq!((refused.code, &refused.details["field"]), (Code::InvalidArgument, &name));
                assert_eq!(refused.detail, format!("{name}: it must not be given twice"));
            }
        }
        let twice = r#"{"sandbox": {"env": {"A": "HUSH"}}, "count": 1, "sandbox": {}}"#;
        let refused = split(twice.as_bytes(), Place::Member, &key()).unwrap_err();
        assert_eq!(refused.details["field"], "sandbox");
        let long = format!("{{\"{0}\": 1, \"{0}\": 1}}", "x".repeat(100_000));
        let refused = split(long.as_bytes(), Place::Whole, &key()).unwrap_err();
        assert_eq!(refused.details["field"], "x".repeat(64));
    }

    proptest! {
        #[test]
        fn no_setting_is_left(body in "\\{(\"(env|cwd|user|sandbox|x)\": ?(\\{\\}|\\{\"(A|env)\": ?\"b\"\\}|\"/?\"|1e99),? ?){0,4}\\}") {
            check_split(body.as_bytes(), false);
            check_split(format!("{{\"sandbox\": {body}}}").as_bytes(), true);
        }
    }

    #[test]
    fn what_is_no_object_is_refused_without_a_word_of_it() {
        for body in ["", "[]", "7", "{\"env\": {\"HUSH\"}}", "{\"env\": HUSH}", "{} HUSH"] {
            let refused = split(body.as_bytes(), Place::Whole, &key()).unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument);
            assert!(!refused.detail.contains("HUSH"), "{}", refused.detail);
        }
    }
}
