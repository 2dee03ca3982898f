#!/usr/bin/env bash
# gVisor: `ulimit -s unlimited` gives a stack of 8 MiB, in silence; 128 MiB asked for by number are given. A
# stack is mapped whole at execve and never grows.
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
import subprocess

DEEP = "t = ()\nfor _ in range(300_000): t = (t,)\nhash(t)"  # by C's stack, some 100 bytes a level


def lives(limit_bytes):
    ask = lambda: resource.setrlimit(resource.RLIMIT_STACK, (limit_bytes, resource.RLIM_INFINITY))
    ended = subprocess.run(["/usr/bin/python3", "-c", DEEP], preexec_fn=ask, capture_output=True)
    return {0: "lives", -11: "dies of SIGSEGV"}.get(ended.returncode, ended)


print(f"deep recursion, unlimited: {lives(resource.RLIM_INFINITY)}; 128 MiB: {lives(128 << 20)}")
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

expect gVisor "deep recursion, unlimited: dies of SIGSEGV; 128 MiB: lives" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "deep recursion, unlimited: lives; 128 MiB: lives" "$(run runc)"
fi
