#!/usr/bin/env bash
# gVisor: a debug register is written without an error and read back as 0, so gdb's `watch` and `hbreak` never
# stop a program.
# Needs root, Go, a merged /usr with python3; with runc in PATH the same bundle is compared. Minutes the first time.
set -euo pipefail
version=v0.0.0-20260905035102-160fafc42237
work=$(mktemp -d)
trap 'umount -q "$work/state/null-netns" || :; rm -rf "$work"' EXIT
CGO_ENABLED=0 GOBIN=$work go install "gvisor.dev/gvisor/runsc@$version"
echo "runsc of gvisor.dev/gvisor $version"

mkdir -p "$work"/rootfs/{proc,tmp,usr,var}
ln -s usr/bin usr/lib usr/lib64 "$work/rootfs"
cat >"$work/rootfs/probe.py" <<'END'
import ctypes
import mmap
import os
import signal

TRACEME, PEEKUSER, POKEUSER, CONT = 0, 3, 6, 7
DEBUG_REGISTERS = 848  # offsetof(struct user, u_debugreg) on amd64
ON_WRITE_OF_8_BYTES = 0x000D0001
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
libc.ptrace.restype = ctypes.c_long
page = mmap.mmap(-1, 4096)
watched = ctypes.c_long.from_buffer(page)

pid = os.fork()
if not pid:
    libc.ptrace(TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    watched.value = 7
    os._exit(0)
os.waitpid(pid, 0)
for register, value in ((0, ctypes.addressof(watched)), (7, ON_WRITE_OF_8_BYTES)):
    if libc.ptrace(POKEUSER, pid, DEBUG_REGISTERS + 8 * register, value):
        raise SystemExit(f"POKEUSER: {os.strerror(ctypes.get_errno())}")
libc.ptrace(CONT, pid, 0, 0)
_, status = os.waitpid(pid, 0)
stopped = os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP
print("the watchpoint is set, and", "stops the write" if stopped else "the program passes it to its end")
if stopped:
    os.kill(pid, signal.SIGKILL)
END
cat >"$work/config.json" <<'END'
{
  "ociVersion": "1.0.2",
  "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["/usr/bin/python3", "/probe.py"]},
  "root": {"path": "rootfs"},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
  ],
  "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}]}
}
END

run() {  # RUNTIME [FLAG...]: what the probe prints in it
  "$@" --root "$work/state" run --bundle "$work" "finding-$$" 2>&1
}
gvisor=("$work/runsc" --network=none --ignore-cgroups)
expect() {  # WHERE EXPECTED SEEN
  echo "$1: $3"
  [[ $3 == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}

expect gVisor "the watchpoint is set, and the program passes it to its end" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "the watchpoint is set, and stops the write" "$(run runc)"
fi
