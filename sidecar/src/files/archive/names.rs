//! Checks the names that an archive brings. Pure.

/// The kernel's limit for a path.
const MAX_NAME_BYTES: usize = 4095;

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsafe {
    /// It begins at the root.
    Absolute,
    /// It has a `..` part.
    Parent,
    /// It is longer than any path may be.
    TooLong,
    /// It contains a NUL.
    Nul,
}

impl Unsafe {
    /// A reason for machines, and a phrase for people.
    pub(super) fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::Absolute => ("unsafe_name", "is an absolute name; an archive brings relative ones"),
            Self::Parent => ("unsafe_name", "leaves the directory that it is unpacked to"),
            Self::TooLong => ("name_too_long", "is longer than a path may be"),
            Self::Nul => ("unsafe_name", "holds a NUL"),
        }
    }
}

/// Splits a name into parts, none of them empty, `.` or `..`. No parts mean the destination itself.
pub(super) fn parts(name: &[u8]) -> Result<Vec<&[u8]>, Unsafe> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Unsafe::TooLong);
    }
    if name.starts_with(b"/") {
        return Err(Unsafe::Absolute);
    }
    if name.contains(&0) {
        return Err(Unsafe::Nul);
    }
    let parts: Vec<&[u8]> =
        name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) { Err(Unsafe::Parent) } else { Ok(parts) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_would_leave_is_refused() {
        assert_eq!(parts(b"/etc/passwd"), Err(Unsafe::Absolute));
        assert_eq!(parts(b"a/../../b"), Err(Unsafe::Parent));
        assert_eq!(parts(b".."), Err(Unsafe::Parent));
        assert_eq!(parts(b"a\0b"), Err(Unsafe::Nul));
        assert_eq!(parts(&[b'x'; 4096]), Err(Unsafe::TooLong));
        assert_eq!(parts(b"./a//b/"), Ok(vec![&b"a"[..], b"b"]));
        assert_eq!(parts(b"./"), Ok(vec![]));
        assert_eq!(parts(b"..a/b.."), Ok(vec![&b"..a"[..], b"b.."]));
    }

    proptest! {
        #[test]
        fn parts_only_ever_descend(name in prop::collection::vec(prop::sample::select(&b"/.a\0"[..]), 0..16)) {
            if let Ok(parts) = parts(&name) {
                for part in parts {
                    prop_assert!(!part.is_empty() && part != b"." && part != b".." && !part.contains(&b'/') && !part.contains(&0));
                }
            }
        }
    }
}
