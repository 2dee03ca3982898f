use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use wire::Problem;

use super::rules::refused;

/// The members of a JSON object as they are written.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

/// A JSON object, or the first name that it gives twice: one of the values would be ignored, and readers differ in
/// which one.
pub(super) struct Object(Result<Fields, String>);

impl Object {
    /// Its members.
    ///
    /// # Errors
    /// `invalid_argument`: it gives a name twice, which the problem has below `prefix`.
    pub(super) fn fields(self, prefix: &str) -> Result<Fields, Problem> {
        self.0.map_err(|twice| {
            let shown: String = twice.chars().take(64).collect();
            refused(prefix, &shown)("it must not be given twice".to_owned())
        })
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let (mut fields, mut twice) = (Fields::new(), None);
                while let Some((name, value)) = map.next_entry()? {
                    match fields.entry(name) {
                        Entry::Vacant(free) => {
                            free.insert(value);
                        }
                        Entry::Occupied(taken) => {
                            twice.get_or_insert_with(|| taken.key().clone());
                        }
                    }
                }
                Ok(Object(twice.map_or(Ok(fields), Err)))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
