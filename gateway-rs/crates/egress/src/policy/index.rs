use percent_encoding::percent_decode_str;

use super::host::Host;

/// The name by which programs reach the package cache, in plain HTTP alone. It is never resolved.
pub const PACKAGES: &str = "packages.rollbox.internal";

/// The package index that a path of a request to the cache is for: `/pypi.org/simple/` is for `pypi.org`.
///
/// What the cache could read as the path of another index is refused: a first segment in another notation, and segments
/// that lead upwards, also those that are written with escapes.
///
/// # Errors
/// What is wrong with the path.
pub fn index(path: &str) -> Result<Host, &'static str> {
    let whole = whole_escapes(path).then(|| percent_decode_str(path).collect::<Vec<u8>>());
    let decoded = whole.ok_or("its path has a broken escape")?;
    if decoded.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\') {
        return Err("its path has a control character or a backslash");
    }
    if decoded.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b"..")) {
        return Err("its path has a segment that leads upwards");
    }
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next()).unwrap_or_default();
    match Host::parse(first) {
        Ok(Host::Name(name)) if *name == *first => Ok(Host::Name(name)),
        _ => {
            Err("its path does not begin with the name of an index in small letters, like /pypi.org/simple/")
        }
    }
}

fn whole_escapes(path: &str) -> bool {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    path.split('%').skip(1).all(is_escape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_segment_is_the_index() {
        for path in [
            "/pypi.org",
            "/pypi.org/",
            "/pypi.org/simple/six/",
            "/pypi.org/@a%2fb",
            "/pypi.org//a",
            "/pypi.org/..a/.b",
        ] {
            assert_eq!(index(path).unwrap().to_string(), "pypi.org", "{path}");
        }
    }

    #[test]
    fn what_could_be_read_as_another_index_is_refused() {
        for path in [
            "",
            "/",
            "//pypi.org/",
            "pypi.org/",
            "/PyPI.org/",
            "/pypi.org./",
            "/pypi%2eorg/",
            "/pypi.org%2f..%2fevil.test/",
            "/pypi.org/../evil.test/",
            "/pypi.org/a/%2E%2e/../evil.test",
            "/pypi.org/./",
            "/pypi.org/..",
            "/pypi.org/a\\..\\b",
            "/pypi.org/%5c",
            "/pypi.org/%00",
            "/pypi.org/%0d%0aHost:%20evil.test",
            "/pypi.org/%",
            "/pypi.org/%2",
            "/pypi.org/%zz",
            "/192.0.2.7/",
            "/127.1/",
            "/[::1]/",
            "/pypi.org:443/",
            "/me@pypi.org/",
        ] {
            assert!(index(path).is_err(), "{path}");
        }
    }

    /// As the cache reads a path: escapes first, then segments that lead upwards, then double slashes.
    fn as_a_server_reads_it(path: &str) -> Option<Vec<u8>> {
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let mut kept: Vec<&[u8]> = Vec::new();
        for segment in decoded.split(|byte| *byte == b'/') {
            match segment {
                b"" | b"." => {}
                b".." => drop(kept.pop()),
                other => kept.push(other),
            }
        }
        kept.first().map(|first| first.to_vec())
    }

    proptest! {
        #[test]
        fn a_server_reads_the_same_index(path in "(/|%2[fF]|%2e|%25|\\.|\\.\\.|a|b\\.c|%41|%5c|:|@){0,12}") {
            if let Ok(host) = index(&path) {
                prop_assert_eq!(as_a_server_reads_it(&path), Some(host.to_string().into_bytes()));
            }
        }
    }
}
