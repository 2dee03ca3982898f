//! The table of mounts as `/proc/PID/mountinfo` has it, as far as it matters here. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// Where it is, with no link on the way.
    pub(crate) at: PathBuf,
    /// The kind of its file system.
    pub(crate) kind: &'a str,
    /// The options of its file system.
    pub(crate) options: &'a str,
    /// Whether what is seen there can be written.
    pub(crate) writable: bool,
}

/// All mounts, those below before those above.
pub(crate) fn all(mountinfo: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(parse)
}

/// What is seen at a place that is a mount.
pub(crate) fn topmost<'a>(mountinfo: &'a str, at: &Path) -> Option<Mount<'a>> {
    all(mountinfo).rev().find(|mount| mount.at == at)
}

fn parse(line: &str) -> Option<Mount<'_>> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(4);
    let (at, flags) = (unescaped(mount.next()?), mount.next()?);
    let mut file_system = file_system.split(' ');
    let writable = !flags.split(',').any(|flag| flag == "ro");
    Some(Mount { at, kind: file_system.next()?, options: file_system.nth(1)?, writable })
}

/// Kernels write white space and backslashes as `\` and three octal digits.
fn unescaped(path: &str) -> PathBuf {
    let mut parts = path.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let octal = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(b'\\'));
        bytes.extend_from_slice(&part.as_bytes()[if octal.is_some() { 3 } else { 0 }..]);
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_place_kind_and_options() {
        let line = "36 35 98:0 /inner /tmp rw,noatime master:1 shared:2 - ext4 /dev/root ro";
        let tmp = Mount { at: "/tmp".into(), kind: "ext4", options: "ro", writable: true };
        assert_eq!(parse(line), Some(tmp));
        assert!(!parse("42 36 0:41 / /data ro,nosuid - 9p none rw").unwrap().writable);
        assert_eq!(parse("no mount"), None);
    }

    #[test]
    fn of_two_mounts_at_one_place_the_later_is_seen() {
        let both = "14 6 0:30 / /tmp rw - tmpfs none rw\n15 14 0:31 / /tmp rw - 9p none rw\n";
        assert_eq!(topmost(both, Path::new("/tmp")).unwrap().kind, "9p");
        assert_eq!(topmost(both, Path::new("/tmp/inner")), None);
    }

    #[test]
    fn white_space_in_a_path_is_itself() {
        let path = |text| unescaped(text).into_os_string().into_string().unwrap();
        assert_eq!(path(r"/my\040data\134x"), r"/my data\x");
        assert_eq!(path(r"/odd\9"), r"/odd\9");
    }
}
