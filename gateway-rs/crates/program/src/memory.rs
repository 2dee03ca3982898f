//! How much freed memory the allocator keeps.

#![allow(unsafe_code, reason = "mallopt has no safe wrapper")]

/// Larger blocks go back to the kernel when they are freed: inputs and outputs of execs, which are rare and up to 16
/// MiB.
const LARGE_BYTES: i32 = 1 << 20;

/// How much of the smaller blocks is kept for each thread. By default the allocator gives back what streams free and
/// takes it again with every message; the kernel then clears it each time, which costs more than moving the data.
const KEPT_BYTES: i32 = 4 << 20;

/// Applies both settings to the whole process.
pub fn configure() {
    // SAFETY: sets two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}
