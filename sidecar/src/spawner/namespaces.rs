//! Joins the target's namespaces.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::sched::{CloneFlags, setns};

/// The mount namespace comes last: after it the paths below `/proc` belong to another file system. The PID namespace is
/// not joined: commands live in one of their own, nested in the sidecar's.
const ORDER: [(&str, CloneFlags); 5] = [
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("net", CloneFlags::CLONE_NEWNET),
    ("cgroup", CloneFlags::CLONE_NEWCGROUP),
    ("mnt", CloneFlags::CLONE_NEWNS),
];

/// Joins each namespace of process `pid` that this process is not in already. A kind that this kernel does not know is
/// skipped.
///
/// # Errors
/// A namespace cannot be opened or joined; the message names it.
pub(super) fn join(pid: i32) -> io::Result<()> {
    let named =
        |name: &'static str| move |err: io::Error| io::Error::other(format!("namespace {name}: {err}"));
    let mut wanted = Vec::new();
    for (name, kind) in ORDER {
        if let Some(file) = differing(pid, name).map_err(named(name))? {
            wanted.push((name, kind, file));
        }
    }
    for (name, kind, file) in wanted {
        setns(&file, kind).map_err(io::Error::from).map_err(named(name))?;
    }
    Ok(())
}

fn differing(pid: i32, name: &str) -> io::Result<Option<File>> {
    let own = match fs::metadata(format!("/proc/self/ns/{name}")) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let file = File::open(format!("/proc/{pid}/ns/{name}"))?;
    let theirs = file.metadata()?;
    Ok(((own.dev(), own.ino()) != (theirs.dev(), theirs.ino())).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespaces_need_no_joining() {
        let pid = std::process::id().cast_signed();
        for (name, _) in ORDER {
            assert!(differing(pid, name).unwrap().is_none(), "{name}");
        }
        assert!(differing(pid, "no-such-kind").unwrap().is_none());
    }
}
