//! Copies the target's binary to the path where the target container expects it.
//!
//! In a pod no other part can do this: the target has the user's image, and the volume that both containers share is
//! empty until this has run. The kubelet starts the target only after the sidecar has started, more than 0.1 s later.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use wire::{Code, Problem};

/// The binary's name; it lies beside the sidecar's own.
const TARGET: &str = "rollbox-target";
/// Every user may execute it, none may change it.
const MODE: u32 = 0o555;

/// Copies the target's binary from beside this process's own to `destination`, an absolute path whose directory exists.
/// The file appears whole or not at all. Cost: about a millisecond.
///
/// # Errors
/// `internal`: the binary cannot be read or written; the detail names both paths.
pub fn install(destination: &Path) -> Result<(), Problem> {
    let own = std::env::current_exe();
    let source = own.map(|own| own.with_file_name(TARGET)).map_err(|err| failed(destination, &err))?;
    put(&source, destination).map_err(|err| {
        let err = io::Error::new(err.kind(), format!("copy of {}: {err}", source.display()));
        failed(destination, &err)
    })
}

/// Writes to another name first: neither a half-written binary nor one that is still open for writing may be started.
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
