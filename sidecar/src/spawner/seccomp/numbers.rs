//! The numbers of the system calls that the filter knows, by architecture. Pure.
#![allow(dead_code, reason = "each architecture reads its own columns")]

/// A system call and its number in each table of the kernel; `None` where there is no such call.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) x86_64: Option<u32>,
    pub(super) i386: Option<u32>,
    pub(super) aarch64: Option<u32>,
}

const fn call(name: &'static str, x86_64: u32, i386: u32, aarch64: u32) -> Call {
    Call { name, x86_64: Some(x86_64), i386: Some(i386), aarch64: Some(aarch64) }
}

/// Since Linux 5.1 new calls have the same number everywhere.
const fn modern(name: &'static str, number: u32) -> Call {
    call(name, number, number, number)
}

/// The calls that commands may not make.
pub(super) const DENIED: [Call; 23] = [
    call("mount", 165, 21, 40),
    Call { name: "umount", x86_64: None, i386: Some(22), aarch64: None },
    call("umount2", 166, 52, 39),
    call("pivot_root", 155, 217, 41),
    call("quotactl", 179, 131, 60),
    call("sethostname", 170, 74, 161),
    call("setdomainname", 171, 121, 162),
    call("syslog", 103, 103, 116),
    call("lookup_dcookie", 212, 253, 18),
    call("unshare", 272, 310, 97),
    call("perf_event_open", 298, 336, 241),
    call("fanotify_init", 300, 338, 262),
    call("setns", 308, 346, 268),
    call("bpf", 321, 357, 280),
    modern("open_tree", 428),
    modern("move_mount", 429),
    modern("fsopen", 430),
    modern("fsconfig", 431),
    modern("fsmount", 432),
    modern("fspick", 433),
    modern("mount_setattr", 442),
    modern("quotactl_fd", 443),
    modern("open_tree_attr", 467),
];

/// May make threads and processes, but no namespaces.
pub(super) const CLONE: Call = call("clone", 56, 120, 220);
/// Its flags are in memory, where a filter cannot read them.
pub(super) const CLONE3: Call = modern("clone3", 435);

/// One of the kernel's tables of system calls.
pub(super) struct Table {
    /// `AUDIT_ARCH_*`, as the kernel tells it to the filter.
    pub(super) arch: u32,
    /// A call's number in this table.
    pub(super) number: fn(&Call) -> Option<u32>,
    /// Numbers from here on belong to another table with the same `arch`.
    pub(super) foreign_from: Option<u32>,
}

/// `linux/audit.h`: the ELF machine (`EM_*`), whether it has 64 bits, and little-endian.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const AUDIT_ARCH_I386: u32 = 0x4000_0003;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;
/// `asm/unistd.h`: set in the numbers of x32, which has the `arch` of x86-64.
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

const X86_64: Table =
    Table { arch: AUDIT_ARCH_X86_64, number: |call| call.x86_64, foreign_from: Some(X32_SYSCALL_BIT) };
const I386: Table = Table { arch: AUDIT_ARCH_I386, number: |call| call.i386, foreign_from: None };
const AARCH64: Table = Table { arch: AUDIT_ARCH_AARCH64, number: |call| call.aarch64, foreign_from: None };

/// The tables of this architecture; the native one is first.
#[cfg(target_arch = "x86_64")]
pub(super) const TABLES: [Table; 2] = [X86_64, I386];
#[cfg(target_arch = "aarch64")]
pub(super) const TABLES: [Table; 1] = [AARCH64];
