#!/usr/bin/env bash
# gVisor: a device of a container's specification becomes a node of its number, and nothing of the host is behind it: a
# number that gVisor has itself opens gVisor's device, any other one is ENXIO. So a device that a driver gives by CDI
# looks as if it were there, and of some kinds it can be opened.
# Needs root, Go, a merged /usr with python3, /dev/loop-control; with runc in PATH the same bundle is compared. Minutes
# the first time.
set -euo pipefail
version=v0.0.0-20260905035102-160fafc42237
work=$(mktemp -d)
trap 'umount -q "$work/state/null-netns" || :; rm -rf "$work"' EXIT
CGO_ENABLED=0 GOBIN=$work go install "gvisor.dev/gvisor/runsc@$version"
echo "runsc of gvisor.dev/gvisor $version"

mkdir -p "$work"/rootfs/{proc,dev,usr}
ln -s usr/bin usr/lib usr/lib64 "$work/rootfs"
cat >"$work/rootfs/probe.py" <<'END'
import errno, os

for name in ("fuse", "loop-control"):
    path = f"/dev/given-{name}"
    try:
        os.close(os.open(path, os.O_RDWR))
        print(f"{name}: opened")
    except OSError as error:
        print(f"{name}: {errno.errorcode[error.errno]}")
END
cat >"$work/config.json" <<'END'
{
  "ociVersion": "1.0.2",
  "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["/usr/bin/python3", "/probe.py"]},
  "root": {"path": "rootfs"},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
    {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
  ],
  "linux": {
    "devices": [
      {"path": "/dev/given-fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 384, "uid": 0, "gid": 0},
      {"path": "/dev/given-loop-control", "type": "c", "major": 10, "minor": 237, "fileMode": 384, "uid": 0, "gid": 0}
    ],
    "resources": {"devices": [{"allow": true, "type": "c", "major": 10, "access": "rwm"}]},
    "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}]
  }
}
END

run() {  # RUNTIME [FLAG...]: what the probe prints in it
  "$@" --root "$work/state" run --bundle "$work" "finding-$$" 2>&1
}
expect() {  # WHERE EXPECTED SEEN
  printf '%s:\n%s\n' "$1" "$3"
  [[ $3 == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}

expect gVisor $'fuse: opened\nloop-control: ENXIO' "$(run "$work/runsc" --network=none --ignore-cgroups)"
if command -v runc >/dev/null; then
  expect runc $'fuse: opened\nloop-control: opened' "$(run runc)"
fi
