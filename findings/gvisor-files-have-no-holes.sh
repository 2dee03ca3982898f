#!/usr/bin/env bash
# gVisor: a sparse file takes all its size, SEEK_DATA is EINVAL and a hole cannot be punched: tar -S, qemu-img
# and cp --sparse save nothing.
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
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
KEEP_SIZE, PUNCH_HOLE = 1, 2
fd = os.open("/var/sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 64 << 20)
taken_mib = os.fstat(fd).st_blocks * 512 >> 20
try:
    os.lseek(fd, 0, os.SEEK_DATA)
    data = "found"
except OSError as error:
    data = errno.errorcode[error.errno]
failed = libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 4096)
punched = errno.errorcode[ctypes.get_errno()] if failed else "done"
print(f"64 MiB of nothing take {taken_mib} MiB; SEEK_DATA: {data}; punch: {punched}")
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

expect gVisor "64 MiB of nothing take 64 MiB; SEEK_DATA: EINVAL; punch: ENOTSUP" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "64 MiB of nothing take 0 MiB; SEEK_DATA: ENXIO; punch: done" "$(run runc)"
fi
