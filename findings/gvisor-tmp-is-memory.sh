#!/usr/bin/env bash
# gVisor: /tmp is a tmpfs of half the host's memory where the image's /tmp is empty, though the bundle mounts
# nothing there; one file in it, and /tmp is the root file system.
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
import os

mounted = [line.split() for line in open("/proc/self/mountinfo") if line.split()[4] == "/tmp"]
kind = mounted[0][mounted[0].index("-") + 1] if mounted else "the root file system"
before = int(open("/proc/meminfo").read().split("MemFree:")[1].split()[0])
with open("/tmp/large", "wb") as large:
    large.write(bytes(100 << 20))
taken_kib = before - int(open("/proc/meminfo").read().split("MemFree:")[1].split()[0])
print(f"/tmp is {kind}; a file of 100 MiB there is {'memory' if taken_kib > 90 << 10 else 'no memory'}")
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

expect gVisor "/tmp is tmpfs; a file of 100 MiB there is memory" "$(run "${gvisor[@]}")"
touch "$work/rootfs/tmp/.keep"
expect "gVisor, /tmp/.keep in the image" "/tmp is the root file system; a file of 100 MiB there is no memory" "$(run "${gvisor[@]}")"
rm -f "$work/rootfs/tmp"/{.keep,large}
if command -v runc >/dev/null; then
  seen=$(run runc)
  expect runc "/tmp is the root file system" "${seen%%;*}"
fi
