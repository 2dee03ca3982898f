#!/usr/bin/env bash
# gVisor: RLIMIT_DATA bounds brk alone, so programs that take memory by mmap pass it; Linux bounds both.
# RLIMIT_AS holds in both.
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
import resource


def takes(limit):
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (64 << 20, before[1]))
    try:
        return f"{len(bytearray(256 << 20)) >> 20} MiB"
    except MemoryError:
        return "MemoryError"
    finally:
        resource.setrlimit(limit, before)


print(f"256 MiB under RLIMIT_DATA of 64: {takes(resource.RLIMIT_DATA)}; under RLIMIT_AS: {takes(resource.RLIMIT_AS)}")
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

expect gVisor "256 MiB under RLIMIT_DATA of 64: 256 MiB; under RLIMIT_AS: MemoryError" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "256 MiB under RLIMIT_DATA of 64: MemoryError; under RLIMIT_AS: MemoryError" "$(run runc)"
fi
