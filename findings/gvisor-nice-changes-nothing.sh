#!/usr/bin/env bash
# gVisor: niceness is kept and told, and changes nothing of who gets a processor: of two programs on one, that
# of nice 19 gets half.
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
import time

SECONDS = 4


def count():
    done, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        done += 1
    return done


told = []
for nice in (0, 19):
    reader, writer = os.pipe()
    if not os.fork():
        os.nice(nice)
        os.write(writer, str(count()).encode())
        os._exit(0)
    told.append(reader)
first, last = (int(os.read(reader, 99)) for reader in told)
print(f"nice 0 gets {'more than 5 times' if first > 5 * last else 'about as much as'} nice 19")
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

expect gVisor "nice 0 gets about as much as nice 19" "$(run taskset -c 0 "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "nice 0 gets more than 5 times nice 19" "$(run taskset -c 0 runc)"
fi
