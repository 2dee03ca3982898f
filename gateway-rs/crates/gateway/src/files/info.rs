use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use wire::agent::{FileInfo, FileKind};

use crate::http::json::write;

/// The file's info, in the response to a download.
pub(super) const HEADER: http::HeaderName = http::HeaderName::from_static("x-rollbox-file");

/// Size limit of that header: many clients accept 8 KiB in a line.
const MAX_HEADER_BYTES: usize = 6 << 10;

/// A file's info as JSON.
pub(super) struct Info<'a>(pub(super) &'a FileInfo);

impl Serialize for Info<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let info = self.0;
        let mut map = serializer.serialize_map(None)?;
        name(&mut map, "path", "path_base64", &info.path)?;
        map.serialize_entry("kind", kind(info.kind()))?;
        map.serialize_entry("size_bytes", &info.size_bytes)?;
        map.serialize_entry("mode", &info.mode)?;
        map.serialize_entry("uid", &info.uid)?;
        map.serialize_entry("gid", &info.gid)?;
        map.serialize_entry("modified_at_ms", &info.modified_at_ms)?;
        match info.kind() {
            FileKind::Symlink => name(&mut map, "link_target", "link_target_base64", &info.link_target)?,
            _ => map.serialize_entry("link_target", &None::<&str>)?,
        }
        if !info.sha256.is_empty() {
            map.serialize_entry("sha256", &hex(&info.sha256))?;
        }
        map.end()
    }
}

/// Writes a name as text if it is UTF-8, else as base64 under a key of its own.
pub(super) fn name<M: SerializeMap>(
    map: &mut M,
    text: &'static str,
    base64: &'static str,
    name: &[u8],
) -> Result<(), M::Error> {
    match std::str::from_utf8(name) {
        Ok(name) => map.serialize_entry(text, name),
        Err(_) => map.serialize_entry(base64, &STANDARD.encode(name)),
    }
}

pub(super) fn json(info: &FileInfo) -> Vec<u8> {
    let mut json = Vec::new();
    write(&mut json, &Info(info));
    json
}

/// The same for a header; `None` when it is too long for one.
pub(super) fn header(info: &FileInfo) -> Option<HeaderValue> {
    let text = String::from_utf8(json(info)).ok()?;
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        if (' '..='~').contains(&c) {
            ascii.push(c);
        } else {
            // JSON is ASCII outside of strings, so every such character is inside one.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")));
        }
    }
    HeaderValue::try_from(ascii).ok().filter(|value| value.len() <= MAX_HEADER_BYTES)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other | FileKind::Unspecified => "other",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(info: &FileInfo) -> Value {
        serde_json::from_slice(&json(info)).unwrap()
    }

    #[test]
    fn a_file_is_told_whole() {
        let mut info = FileInfo {
            path: b"/a".into(),
            size_bytes: 5,
            mode: 0o644,
            sha256: vec![0xab; 32],
            ..Default::default()
        };
        info.set_kind(FileKind::File);
        let expected = json!({"path": "/a", "kind": "file", "size_bytes": 5, "mode": 0o644, "uid": 0, "gid": 0,
            "modified_at_ms": 0, "link_target": null, "sha256": "ab".repeat(32)});
        assert_eq!(parsed(&info), expected);
    }

    #[test]
    fn names_that_are_no_text_come_as_base64() {
        let mut info = FileInfo { path: b"\xff".into(), link_target: b"\xfe".into(), ..Default::default() };
        info.set_kind(FileKind::Symlink);
        let told = parsed(&info);
        assert_eq!((&told["path_base64"], &told["link_target_base64"]), (&json!("/w=="), &json!("/g==")));
        assert_eq!((told.get("path"), told.get("link_target")), (None, None));
    }

    #[test]
    fn a_header_is_ascii_and_means_the_same() {
        let info = FileInfo { path: "/ä\u{7f}\n\u{1f600}".into(), ..Default::default() };
        let value = header(&info).unwrap();
        assert_eq!(serde_json::from_str::<Value>(value.to_str().unwrap()).unwrap(), parsed(&info));
        assert_eq!(header(&FileInfo { path: vec![b'a'; 7000], ..Default::default() }), None);
    }
}
