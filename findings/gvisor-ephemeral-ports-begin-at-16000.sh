#!/usr/bin/env bash
# gVisor: ports of outgoing connections and of bind to 0 are from 16000 up, where Linux has 32768 to 60999:
# services of tests on fixed ports between (27017, 18080) meet them.
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
import socket

bound = [socket.socket() for _ in range(300)]
for one in bound:
    one.bind(("", 0))
ports = [one.getsockname()[1] for one in bound]
told = open("/proc/sys/net/ipv4/ip_local_port_range").read().split()
print(f"the range is {' to '.join(told)}; below 32768: {'some' if min(ports) < 32768 else 'none'}")
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

expect gVisor "the range is 16000 to 65535; below 32768: some" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "the range is 32768 to 60999; below 32768: none" "$(run runc)"
fi
