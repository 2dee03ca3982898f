//! Receives a file: it is written beside the old one, checked, then brought to its name.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, SFlag, umask};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid};
use sha2::{Digest, Sha256};
use wire::agent::{FileInfo, WriteFileRequest};
use wire::{Code, Problem};

use super::errors::{At, Stop, refusal, shown};
use super::info::{info, kind};
use super::pipes::Incoming;
use super::place::{Place, locate, make_parents};
use super::rewrite::{Rewrite, Wanted};
use crate::spawner::Databases;

/// Mode of a new file when the request names none, before the umask.
const FRESH_MODE: u32 = 0o666;

/// Receives a file. The old content stays until all bytes have arrived and are checked.
pub(super) fn write(request: &WriteFileRequest) -> Result<FileInfo, Stop> {
    let path = request.path.as_slice();
    if path.ends_with(b"/") {
        return Err(Errno::EISDIR).at(path);
    }
    if request.parents {
        make_parents(path)?;
    }
    let place = locate(path, true).at(path)?;
    let old = old(&place, path)?;
    let wanted = Wanted {
        owner: owner(&request.owner)?,
        mode: wanted_mode(request, old.as_ref()),
        modified: request.modified_at_ms.map(time),
    };
    // Who names a mode may make the file writable; and a write that is sent again finds its own read-only file.
    let as_owner = request.mode.is_some();
    let rewrite =
        Rewrite::begin(place.directory.as_fd(), &place.name, path, old, as_owner, request.in_place)?;
    let (size, digest) = receive(rewrite.content(), path)?;
    check(request, size, &digest)?;
    let stat = rewrite.commit(wanted)?;
    Ok(FileInfo { sha256: digest, ..info(path, &stat) })
}

/// The stat of what is there, which must be a regular file to be replaced.
fn old(place: &Place, path: &[u8]) -> Result<Option<FileStat>, Stop> {
    match place.stat() {
        Err(Errno::ENOENT) => Ok(None),
        found => {
            let stat = found.at(path)?;
            match kind(&stat) {
                SFlag::S_IFREG => Ok(Some(stat)),
                SFlag::S_IFDIR => Err(Errno::EISDIR).at(path),
                _ => {
                    let sentence = "is a device, FIFO or socket, not a regular file";
                    Err(refusal(Code::InvalidArgument, path, "not_regular", sentence).into())
                }
            }
        }
    }
}

fn owner(spec: &str) -> Result<Option<(Uid, Gid)>, Stop> {
    if spec.is_empty() {
        return Ok(None);
    }
    let found = Databases::read().resolve(spec).map_err(|detail| {
        Problem::new(Code::InvalidArgument, detail).with("reason", "user_not_found").with("field", "owner")
    })?;
    Ok(Some((Uid::from_raw(found.uid), Gid::from_raw(found.gid))))
}

fn receive(mut file: &File, path: &[u8]) -> Result<(u64, Vec<u8>), Stop> {
    let (mut incoming, mut digest) = (Incoming::new(), Sha256::new());
    let mut size = 0;
    loop {
        let data = incoming.fill_buf().map_err(Incoming::stop)?;
        if data.is_empty() {
            return Ok((size, digest.finalize().to_vec()));
        }
        digest.update(data);
        file.write_all(data).at(path)?;
        let count = data.len();
        size += count as u64;
        incoming.consume(count);
    }
}

fn check(request: &WriteFileRequest, size: u64, digest: &[u8]) -> Result<(), Problem> {
    let wrong = |reason: &str, detail: String| {
        Problem::new(Code::InvalidArgument, detail)
            .with("reason", reason)
            .with("path", shown(&request.path))
            .with("size_bytes", size)
            .with("sha256", hex(digest))
    };
    if let Some(announced) = request.size_bytes.filter(|announced| *announced != size) {
        let detail = format!("{size} bytes arrived but {announced} were announced; the old file stays");
        return Err(wrong("size_mismatch", detail));
    }
    if !request.sha256.is_empty() && request.sha256 != digest {
        let detail = "the bytes that arrived have a different SHA-256 than announced; the old file stays";
        return Err(wrong("digest_mismatch", detail.to_owned()));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The request's mode; none for that of the file that is there, and for a new file what the umask leaves. Setuid, setgid
/// and sticky are only set when the request names them.
fn wanted_mode(request: &WriteFileRequest, old: Option<&FileStat>) -> Option<u32> {
    match old {
        Some(_) => request.mode.filter(|_| !request.keep_mode),
        None => Some(request.mode.unwrap_or_else(|| FRESH_MODE & !current_mask())),
    }
}

fn time(unix_ms: i64) -> TimeSpec {
    TimeSpec::new(unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000) * 1_000_000)
}

/// Reads the umask, which is only possible by setting it; this process has one thread.
pub(super) fn current_mask() -> u32 {
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_announced_is_what_must_come() {
        let digest = Sha256::digest(b"abc").to_vec();
        let reason = |request: WriteFileRequest| {
            check(&request, 3, &digest).map_err(|problem| problem.details["reason"].clone())
        };
        assert_eq!(reason(WriteFileRequest::default()), Ok(()));
        let right = WriteFileRequest { size_bytes: Some(3), sha256: digest.clone(), ..Default::default() };
        assert_eq!(reason(right), Ok(()));
        let short = WriteFileRequest { size_bytes: Some(4), ..Default::default() };
        assert_eq!(reason(short), Err("size_mismatch".into()));
        let other = WriteFileRequest { sha256: vec![1; 32], ..Default::default() };
        assert_eq!(reason(other), Err("digest_mismatch".into()));
        assert_eq!(hex(&digest[..3]), "ba7816");
    }
}
