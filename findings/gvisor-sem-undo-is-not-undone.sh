#!/usr/bin/env bash
# gVisor: semop takes SEM_UNDO without an error and undoes nothing when the process ends: a System V semaphore
# stays taken after its holder has died.
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
import os

libc = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, GETVAL, SETVAL, SEM_UNDO = 0o1000, 12, 16, 0x1000


class Take(ctypes.Structure):
    _fields_ = [("number", ctypes.c_ushort), ("change", ctypes.c_short), ("flags", ctypes.c_short)]


semaphore = libc.semget(0, 1, IPC_CREAT | 0o600)
libc.semctl(semaphore, 0, SETVAL, 1)
pid = os.fork()
if not pid:
    os._exit(libc.semop(semaphore, ctypes.byref(Take(0, -1, SEM_UNDO)), 1) != 0)
_, status = os.waitpid(pid, 0)
print(f"taken: {status == 0}; after its holder's end the semaphore is {libc.semctl(semaphore, 0, GETVAL)}")
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

expect gVisor "taken: True; after its holder's end the semaphore is 0" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "taken: True; after its holder's end the semaphore is 1" "$(run runc)"
fi
