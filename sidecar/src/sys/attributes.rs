//! Extended attributes of open files; access control lists are among them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// The names of a file's extended attributes, access control lists among them; none where the file system has none.
///
/// # Errors
/// As flistxattr(2).
pub fn names(file: BorrowedFd<'_>) -> nix::Result<Vec<CString>> {
    let names = match filled(|buffer, length| {
        // SAFETY: the buffer has this length, and the descriptor is open.
        unsafe { libc::flistxattr(file.as_raw_fd(), buffer.cast(), length) }
    }) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(Vec::new()),
        found => found?,
    };
    Ok(names
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CString::from_vec_with_nul(name.to_vec()).ok())
        .collect())
}

/// The value of an extended attribute.
///
/// # Errors
/// As fgetxattr(2).
pub fn get(file: BorrowedFd<'_>, name: &CStr) -> nix::Result<Vec<u8>> {
    filled(|buffer, length| {
        // SAFETY: the buffer has this length, the name ends with a NUL, and the descriptor is open.
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), buffer, length) }
    })
}

/// Sets an extended attribute.
///
/// # Errors
/// As fsetxattr(2).
pub fn set(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> nix::Result<()> {
    // SAFETY: the value has this length, the name ends with a NUL, and the descriptor is open.
    let set =
        unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(set).map(drop)
}

/// Removes an extended attribute.
///
/// # Errors
/// As fremovexattr(2).
pub fn remove(file: BorrowedFd<'_>, name: &CStr) -> nix::Result<()> {
    // SAFETY: the name ends with a NUL, and the descriptor is open.
    Errno::result(unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) }).map(drop)
}

/// What a call writes that tells its length when it is given no room.
fn filled(read: impl Fn(*mut libc::c_void, usize) -> isize) -> nix::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; usize::try_from(Errno::result(read(std::ptr::null_mut(), 0))?).unwrap_or(0)];
    let count =
        if buffer.is_empty() { 0 } else { Errno::result(read(buffer.as_mut_ptr().cast(), buffer.len()))? };
    buffer.truncate(usize::try_from(count).unwrap_or(0));
    Ok(buffer)
}
