//! Folders of the node that the platform has mounted for programs to write to, as those that a group shares.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const FOR_ALL: u32 = 0o1777;
const OTHERS_WRITE: u32 = 0o002;

/// Where they are as the table of mounts has them: an image may have a link on the way. The caller is in the target's own
/// mount namespace.
pub(super) fn places(given: &[PathBuf]) -> Vec<PathBuf> {
    given.iter().map(|at| fs::canonicalize(at).unwrap_or_else(|_| at.clone())).collect()
}

/// Lets every user of the sandbox write there, as in `/tmp`, where the storage has made a folder for its owner alone.
pub(super) fn open_to_all(places: &[PathBuf]) {
    for at in places {
        if fs::metadata(at).is_ok_and(|seen| seen.permissions().mode() & OTHERS_WRITE == 0) {
            // A file server that trusts no root refuses; then its own settings say who may write.
            let _ = fs::set_permissions(at, Permissions::from_mode(FOR_ALL));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_place_is_where_the_links_of_the_image_lead() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("cache")).unwrap();
        symlink("cache", real.join("link")).unwrap();
        let given = ["link", "absent"].map(|name| real.join(name));
        assert_eq!(places(&given), ["cache", "absent"].map(|name| real.join(name)));
    }

    #[test]
    fn every_user_may_write_and_rights_that_say_so_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |at: &PathBuf| fs::metadata(at).unwrap().permissions().mode() & 0o7777;
        for (before, after) in [(0o755, 0o1777), (0o777, 0o777)] {
            let at = folder.path().join(format!("{before:o}"));
            fs::create_dir(&at).unwrap();
            fs::set_permissions(&at, Permissions::from_mode(before)).unwrap();
            open_to_all(&[at.clone(), folder.path().join("absent")]);
            assert_eq!(mode(&at), after);
        }
    }
}
