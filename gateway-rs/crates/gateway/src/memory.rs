//! What the allocator keeps of what is freed.

#![allow(unsafe_code, reason = "the allocator's settings have no safe face")]

/// Larger pieces are given back to the kernel at once: inputs and outputs of execs, which are rare and up to 16 MiB.
const LARGE_BYTES: i32 = 1 << 20;

/// Of the smaller ones this much is kept for each thread. Left alone, the allocator gives back what streams free and
/// takes it again with every message; the kernel then clears it anew each time, which costs more than to move the data.
const KEPT_BYTES: i32 = 4 << 20;

/// Sets both, for the whole process.
pub(crate) fn settle() {
    // SAFETY: sets two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}
