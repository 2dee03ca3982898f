//! Packs a tree into a tar stream, with the metadata that the kernel has of each file.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use nix::fcntl::{AT_FDCWD, AtFlags, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstatat};
use tar::{EntryType, Header};
use wire::Code;
use wire::agent::{FileChunk, ReadArchiveRequest};

use super::stream::BLOCK_BYTES;
use crate::files::errors::{At, Stop, refusal};
use crate::files::info::{is_directory, kind, mode};
use crate::files::pipes::{Items, Outgoing};
use crate::files::read;
use crate::files::walk::{self, Entry, Moment, Next, walk};

/// Bytes of a name that fit into a header; a longer name gets an entry of its own.
const NAME_BYTES: usize = 100;
const LONG_NAME: &CStr = c"././@LongLink";
const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Sends a directory's contents, or one file, and the last chunk. Devices, FIFOs and sockets in a tree are left
/// out.
pub(in crate::files) fn read(request: &ReadArchiveRequest) -> Result<(), Stop> {
    let path = request.path.as_slice();
    let stat = fstatat(AT_FDCWD, path, AtFlags::empty()).at(path)?;
    let mut out = Outgoing::after(Items::default());
    if is_directory(&stat) {
        let directory = walk::open(AT_FDCWD.as_fd(), path, true).at(path)?;
        walk(directory, &mut Vec::new(), &mut |moment, entry| {
            if moment == Moment::Found {
                pack(entry, &mut out)?;
            }
            Ok(Next::Enter)
        })?;
    } else {
        let (file, stat) = read::open(AT_FDCWD, path, path, true)?;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        head(name, b"", EntryType::Regular, &stat, &mut out)?;
        data(&file, path, &stat, &mut out)?;
    }
    out.put(&ZEROS)?;
    out.put(&ZEROS)?;
    out.end(|sha256| FileChunk { sha256, ..FileChunk::default() })
}

fn pack(entry: &Entry<'_>, out: &mut Outgoing) -> Result<(), Stop> {
    let Entry { directory, name, path, stat } = entry;
    match kind(stat) {
        SFlag::S_IFDIR => head(&[path, &b"/"[..]].concat(), b"", EntryType::Directory, stat, out),
        SFlag::S_IFLNK => {
            let target = readlinkat(directory, *name).at(path)?.into_vec();
            head(path, &target, EntryType::Symlink, stat, out)
        }
        SFlag::S_IFREG => {
            let (file, stat) = read::open(*directory, *name, path, false)?;
            head(path, b"", EntryType::Regular, &stat, out)?;
            data(&file, path, &stat, out)
        }
        _ => Ok(()),
    }
}

fn head(name: &[u8], link: &[u8], kind: EntryType, stat: &FileStat, out: &mut Outgoing) -> Result<(), Stop> {
    long(name, EntryType::GNULongName, out)?;
    long(link, EntryType::GNULongLink, out)?;
    let mut header = Header::new_gnu();
    let old = header.as_old_mut();
    put(&mut old.name, name);
    put(&mut old.linkname, link);
    header.set_entry_type(kind);
    header.set_mode(mode(stat));
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(if kind == EntryType::Regular { size(stat) } else { 0 });
    header.set_cksum();
    out.put(header.as_bytes())
}

fn put(field: &mut [u8; NAME_BYTES], value: &[u8]) {
    let count = value.len().min(NAME_BYTES);
    field[..count].copy_from_slice(&value[..count]);
}

/// Sends a name that is too long for a header, in GNU's way: any length, any bytes, and every tar reader knows it.
fn long(value: &[u8], kind: EntryType, out: &mut Outgoing) -> Result<(), Stop> {
    if value.len() <= NAME_BYTES {
        return Ok(());
    }
    let mut header = Header::new_gnu();
    put(&mut header.as_old_mut().name, LONG_NAME.to_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(value.len() as u64 + 1);
    header.set_cksum();
    out.put(header.as_bytes())?;
    out.put(value)?;
    out.put(b"\0")?;
    pad(value.len() as u64 + 1, out)
}

fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Sends as many bytes as the header announced. Bytes that are appended meanwhile are left out; a file that is cut
/// short meanwhile fails the call, since the missing bytes cannot be made up.
fn data(file: &std::fs::File, path: &[u8], stat: &FileStat, out: &mut Outgoing) -> Result<(), Stop> {
    let announced = size(stat);
    if read::send(file, path, announced, out)? < announced {
        let sentence = "became shorter while it was read";
        return Err(refusal(Code::Conflict, path, "changed", sentence).into());
    }
    pad(announced, out)
}

fn pad(length: u64, out: &mut Outgoing) -> Result<(), Stop> {
    let block = BLOCK_BYTES as u64;
    let missing = usize::try_from((block - length % block) % block).unwrap_or(0);
    out.put(&ZEROS[..missing])
}
