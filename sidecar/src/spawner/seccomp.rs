//! The seccomp filter of all commands, as a BPF program. Pure.
//!
//! The engine gave the sidecar `SYS_ADMIN`, and with it a seccomp profile that allows what the default profile denies.
//! Commands inherit that profile. They lack the capability, but a new user namespace would give it back to them, so
//! exactly those calls are denied here.
//!
//! Written by hand instead of with a filter library, because it has to cover what those leave open or kill: on x86-64
//! also the 32-bit numbers (programs built for i386 work, their `mount` does not) and the x32 ones.

mod numbers;

use libc::{BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

use numbers::{CLONE, CLONE3, DENIED, TABLES, Table};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// The answer for `clone3`, whose flags a filter cannot read: libraries fall back to `clone`. Also for foreign numbers.
const ABSENT: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// Offsets in `struct seccomp_data`, little-endian.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;

/// This many numbers or fewer are compared one by one.
const LISTED: usize = 2;

/// The spawner's pid, as commands see it.
const INIT: u32 = 1;
/// `fcntl.h`; the libc crate has it for one architecture only.
const F_SETSIG: libc::c_int = 10;

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Whether the kernel itself protects the init of a PID namespace from signals sent inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitSignals {
    /// It does, as Linux has always done.
    Shielded,
    /// It does not (gVisor, which says so in its source): `kill -9 1` would end the sandbox, and as the platform's
    /// fault. The filter denies calls that can send a signal to process 1; signals to -1 and to process groups never
    /// reach it.
    Exposed,
}

/// Native numbers of the calls that send a signal to the process in their first argument.
const TO_PROCESS: [libc::c_long; 6] = [
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
];

/// Builds the whole program. On an architecture without a table no system call is allowed.
///
/// The filter takes few steps to each answer: gVisor runs it for each of 2001 numbers at every clone of a process that
/// has it, and with a plain list that was a tenth of the cost of an exec there.
pub fn program(init: InitSignals) -> Vec<sock_filter> {
    let exposed = init == InitSignals::Exposed;
    // A kernel that exposes its init (gVisor) runs no foreign numbers, so their tables are left out.
    let tables = if exposed { &TABLES[..1] } else { &TABLES[..] };
    let mut program = vec![load(ARCH)];
    for table in tables {
        let block = block(table, exposed);
        // A block is far shorter than the 255 instructions that a jump can skip; a test checks that.
        program.push(skip_unless(BPF_JEQ, table.arch, block.len()));
        program.extend(block);
    }
    program.push(answer(ABSENT));
    program
}

/// Builds the program for a process that makes the native `calls` only, and one more with the first arguments that are
/// listed.
pub(crate) fn allowing_only(
    calls: &[libc::c_long],
    (limited, arguments): (libc::c_long, &[libc::c_int]),
) -> Vec<sock_filter> {
    let mut program = vec![load(ARCH), jump(BPF_JEQ, TABLES[0].arch, 1, 0), answer(DENY), load(NUMBER)];
    let mut block = vec![load(FIRST_ARGUMENT)];
    for argument in arguments {
        block.extend([jump(BPF_JEQ, argument.cast_unsigned(), 0, 1), answer(ALLOW)]);
    }
    block.push(answer(DENY));
    // The numbers of system calls are small.
    program.push(skip_unless(BPF_JEQ, limited as u32, block.len()));
    program.extend(block);
    for call in calls {
        // The numbers of system calls are small.
        program.extend([jump(BPF_JEQ, *call as u32, 0, 1), answer(ALLOW)]);
    }
    program.push(answer(DENY));
    program
}

/// The instructions for one number.
type Case = (u32, Vec<sock_filter>);

/// Numbers beyond the last case are answered first; the others are found by binary search, down to a few cases.
fn block(table: &Table, exposed: bool) -> Vec<sock_filter> {
    let mut cases = cases(table, exposed);
    cases.sort_by_key(|(number, _)| *number);
    let last = cases.last().map_or(0, |(number, _)| *number);
    let mut block = vec![load(NUMBER)];
    let mut beyond = Vec::new();
    if let Some(from) = table.foreign_from {
        beyond.extend([jump(BPF_JGE, from, 0, 1), answer(ABSENT)]);
    }
    beyond.push(answer(ALLOW));
    block.push(skip_unless(BPF_JGE, last + 1, beyond.len()));
    block.extend(beyond);
    block.extend(search(&cases));
    block
}

fn cases(table: &Table, exposed: bool) -> Vec<Case> {
    let number = |call| (table.number)(call);
    let denied = DENIED.iter().filter_map(number).map(|number| (number, vec![answer(DENY)]));
    let new_namespaces =
        vec![load(FIRST_ARGUMENT), jump(BPF_JSET, NEW_NAMESPACES, 0, 1), answer(DENY), answer(ALLOW)];
    let clone3 = number(&CLONE3).map(|number| (number, vec![answer(ABSENT)]));
    let clone = number(&CLONE).map(|number| (number, new_namespaces));
    denied.chain(clone3).chain(clone).chain(if exposed { shield() } else { Vec::new() }).collect()
}

fn shield() -> Vec<Case> {
    let to_init = vec![load(FIRST_ARGUMENT), jump(BPF_JEQ, INIT, 0, 1), answer(DENY), answer(ALLOW)];
    let mut cases: Vec<Case> = TO_PROCESS.iter().map(|number| (*number as u32, to_init.clone())).collect();
    // F_SETOWN may name any process as owner of a descriptor; it is harmless without F_SETSIG to one of these two
    // signals.
    let mut fcntl = vec![load(SECOND_ARGUMENT)];
    fcntl.extend([jump(BPF_JEQ, F_SETSIG as u32, 0, 4), load(THIRD_ARGUMENT)]);
    fcntl.extend([jump(BPF_JEQ, libc::SIGKILL as u32, 1, 0), jump(BPF_JEQ, libc::SIGSTOP as u32, 0, 1)]);
    fcntl.extend([answer(DENY), answer(ALLOW)]);
    cases.push((libc::SYS_fcntl as u32, fcntl));
    cases
}

/// Finds the number among `cases`, which are sorted; any other number is allowed.
fn search(cases: &[Case]) -> Vec<sock_filter> {
    if cases.len() <= LISTED {
        let one =
            |(number, done): &Case| [vec![skip_unless(BPF_JEQ, *number, done.len())], done.clone()].concat();
        return cases.iter().flat_map(one).chain([answer(ALLOW)]).collect();
    }
    let (lower, upper) = cases.split_at(cases.len() / 2);
    let (from, upper) = (upper[0].0, search(upper));
    [vec![skip_unless(BPF_JGE, from, upper.len())], upper, search(lower)].concat()
}

/// Skips `length` instructions unless the test holds.
fn skip_unless(test: u32, value: u32, length: usize) -> sock_filter {
    jump(test, value, 0, u8::try_from(length).unwrap_or(u8::MAX))
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

fn jump(test: u32, value: u32, when: u8, otherwise: u8) -> sock_filter {
    instruction(BPF_JMP | test | BPF_K, value, when, otherwise)
}

fn answer(value: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, value, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer that the kernel would give.
    fn run(arch: u32, number: u32, argument: u32) -> u32 {
        interpret(&program(InitSignals::Shielded), arch, number, [argument, 0, 0])
    }

    fn interpret(program: &[sock_filter], arch: u32, number: u32, arguments: [u32; 3]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            let code = u32::from(step.code);
            let taken = |hit: bool| usize::from(if hit { step.jt } else { step.jf });
            at += 1;
            if code == BPF_RET | BPF_K {
                return step.k;
            } else if code == BPF_LD | BPF_W | BPF_ABS {
                value = match step.k {
                    NUMBER => number,
                    ARCH => arch,
                    FIRST_ARGUMENT => arguments[0],
                    SECOND_ARGUMENT => arguments[1],
                    THIRD_ARGUMENT => arguments[2],
                    other => panic!("load from {other}"),
                };
            } else if code == BPF_JMP | BPF_JEQ | BPF_K {
                at += taken(value == step.k);
            } else if code == BPF_JMP | BPF_JGE | BPF_K {
                at += taken(value >= step.k);
            } else {
                at += taken(value & step.k != 0);
            }
        }
    }

    fn native(number: libc::c_long, argument: u32) -> u32 {
        run(TABLES[0].arch, u32::try_from(number).unwrap(), argument)
    }

    #[test]
    fn the_native_numbers_are_those_of_the_names() {
        for number in [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_quotactl,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_syslog,
            libc::SYS_lookup_dcookie,
            libc::SYS_unshare,
            libc::SYS_perf_event_open,
            libc::SYS_fanotify_init,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
            libc::SYS_quotactl_fd,
        ] {
            assert_eq!(native(number, 0), DENY, "{number}");
        }
    }

    #[test]
    fn every_number_has_the_answer_of_its_case_and_all_others_are_allowed() {
        for (exposed, init) in [(false, InitSignals::Shielded), (true, InitSignals::Exposed)] {
            let program = program(init);
            for number in 0..2100 {
                let cases = cases(&TABLES[0], exposed);
                let done = cases.into_iter().find(|(case, _)| *case == number).map(|(_, done)| done);
                let expected = interpret(&done.unwrap_or_else(|| vec![answer(ALLOW)]), 0, number, [1, 10, 9]);
                assert_eq!(interpret(&program, TABLES[0].arch, number, [1, 10, 9]), expected, "{number}");
            }
        }
    }

    #[test]
    fn what_programs_need_is_allowed() {
        for number in
            [libc::SYS_read, libc::SYS_execve, libc::SYS_ptrace, libc::SYS_chroot, libc::SYS_exit_group]
        {
            assert_eq!(native(number, 0), ALLOW, "{number}");
        }
    }

    #[test]
    fn threads_and_forks_are_allowed_but_new_namespaces_are_not() {
        assert_eq!(
            native(libc::SYS_clone, (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u32),
            ALLOW
        );
        assert_eq!(native(libc::SYS_clone, (libc::CLONE_NEWUSER | libc::SIGCHLD) as u32), DENY);
        assert_eq!(native(libc::SYS_clone3, 0), ABSENT);
    }

    #[test]
    fn where_the_kernel_does_not_the_filter_shields_the_init_and_nobody_else() {
        let exposed = program(InitSignals::Exposed);
        let ask = |number: libc::c_long, arguments| {
            interpret(&exposed, TABLES[0].arch, u32::try_from(number).unwrap(), arguments)
        };
        for number in TO_PROCESS {
            assert_eq!(ask(number, [1, 9, 9]), DENY, "{number}");
            assert_eq!(ask(number, [7, 1, 9]), ALLOW, "{number}");
            assert_eq!(ask(number, [u32::MAX, 9, 0]), ALLOW, "{number}");
            assert_eq!(native(number, 1), ALLOW, "{number}");
        }
        for (command, argument, expected) in [
            (F_SETSIG, libc::SIGKILL, DENY),
            (F_SETSIG, libc::SIGSTOP, DENY),
            (F_SETSIG, libc::SIGIO, ALLOW),
            (libc::F_SETFL, libc::SIGKILL, ALLOW),
        ] {
            assert_eq!(ask(libc::SYS_fcntl, [3, command as u32, argument as u32]), expected);
        }
        assert_eq!(ask(libc::SYS_mount, [0; 3]), DENY);
        assert_eq!(ask(libc::SYS_clone, [libc::CLONE_NEWUSER as u32, 0, 0]), DENY);
        assert_eq!(ask(libc::SYS_read, [1, 0, 0]), ALLOW);
    }

    #[test]
    fn a_process_that_makes_few_calls_makes_those_and_natively() {
        let program = allowing_only(&[libc::SYS_read, libc::SYS_write], (libc::SYS_socket, &[2, 10]));
        for number in 0..2100 {
            let listed = [libc::SYS_read, libc::SYS_write].contains(&number);
            for (first, limited) in [(1, false), (2, true), (10, true), (11, false)] {
                let expected = listed || limited && number == libc::SYS_socket;
                let number = u32::try_from(number).unwrap();
                let expected = if expected { ALLOW } else { DENY };
                assert_eq!(
                    interpret(&program, TABLES[0].arch, number, [first; 3]),
                    expected,
                    "{number} {first}"
                );
                assert_eq!(interpret(&program, 0x1234_5678, number, [first; 3]), DENY);
            }
        }
    }

    #[test]
    fn other_tables_and_architectures_are_no_way_around() {
        assert_eq!(run(0x1234_5678, 0, 0), ABSENT);
        for table in &TABLES {
            let number = |call| (table.number)(call).unwrap();
            let mount = DENIED.iter().find(|call| call.name == "mount").unwrap();
            assert_eq!(run(table.arch, number(mount), 0), DENY);
            assert_eq!(run(table.arch, number(&CLONE), libc::CLONE_NEWUSER as u32), DENY);
            assert!(block(table, true).len() < usize::from(u8::MAX));
            if let Some(from) = table.foreign_from {
                assert_eq!(run(table.arch, from + number(mount), 0), ABSENT);
            }
        }
    }
}
