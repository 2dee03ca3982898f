//! Puts the target's binary where the target container expects it.
//!
//! In a pod nobody else can: the target has the user's image, and a volume that both containers share is empty until
//! this has run. The kubelet starts the target only after the sidecar has started, a good tenth of a second later.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use wire::{Code, Problem};

/// Lies beside the sidecar's own binary.
const TARGET: &str = "rollbox-target";
/// Everyone may execute it, nobody may change it.
const MODE: u32 = 0o555;

/// Copies the target's binary from beside this process's own to `destination`, an absolute path whose directory
/// exists. It appears whole or not at all. About a millisecond.
///
/// # Errors
/// `internal`: it cannot be read or written; the detail names both paths.
pub fn install(destination: &Path) -> Result<(), Problem> {
    let own = std::env::current_exe();
    let source = own.map(|own| own.with_file_name(TARGET)).map_err(|err| failed(destination, &err))?;
    put(&source, destination).map_err(|err| {
        let err = io::Error::new(err.kind(), format!("copy of {}: {err}", source.display()));
        failed(destination, &err)
    })
}

/// By another name first: a half-written binary must not be started, nor one that is still open for writing.
fn put(source: &Path, destination: &Path) -> io::Result<()> {
    let whole = destination.with_extension("part");
    fs::copy(source, &whole)?;
    fs::set_permissions(&whole, Permissions::from_mode(MODE))?;
    fs::rename(&whole, destination)
}

fn failed(destination: &Path, err: &io::Error) -> Problem {
    let detail = format!("the target's binary cannot be put at {}: {err}", destination.display());
    Problem::new(Code::Internal, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_whole_executable_and_alone_in_its_directory() {
        let directory = tempfile::TempDir::new().unwrap();
        let (source, destination) = (directory.path().join("source"), directory.path().join("to/target"));
        fs::write(&source, b"binary").unwrap();
        fs::create_dir(directory.path().join("to")).unwrap();
        for _ in 0..2 {
            put(&source, &destination).unwrap();
            assert_eq!(fs::read(&destination).unwrap(), b"binary");
            assert_eq!(fs::metadata(&destination).unwrap().permissions().mode() & 0o7777, MODE);
            assert_eq!(fs::read_dir(directory.path().join("to")).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_failure_names_both_paths() {
        let problem = install(Path::new("/no/such/directory/target")).unwrap_err();
        assert_eq!(problem.code, Code::Internal);
        assert!(problem.detail.contains("/no/such/directory/target"), "{}", problem.detail);
        assert!(problem.detail.contains("rollbox-target"), "{}", problem.detail);
    }
}
