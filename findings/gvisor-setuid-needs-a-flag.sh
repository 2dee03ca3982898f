#!/usr/bin/env bash
# gVisor: a setuid program starts without an error and with its caller's user, unless runsc has --allow-suid:
# sudo and su fail with messages of their own.
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
import subprocess

print("a setuid id, run by 1000, is", subprocess.check_output(["/setuid-id", "-u"], text=True).strip())
END
cat >"$work/config.json" <<'END'
{
  "ociVersion": "1.0.2",
  "process": {"user": {"uid": 1000, "gid": 1000}, "cwd": "/", "args": ["/usr/bin/python3", "/probe.py"]},
  "root": {"path": "rootfs"},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
  ],
  "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}]}
}
END
cp /usr/bin/id "$work/rootfs/setuid-id"
chmod 4755 "$work/rootfs/setuid-id"
chmod 755 "$work" "$work/rootfs"

run() {  # RUNTIME [FLAG...]: what the probe prints in it
  "$@" --root "$work/state" run --bundle "$work" "finding-$$" 2>&1
}
gvisor=("$work/runsc" --network=none --ignore-cgroups)
expect() {  # WHERE EXPECTED SEEN
  echo "$1: $3"
  [[ $3 == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}

expect gVisor "a setuid id, run by 1000, is 1000" "$(run "${gvisor[@]}")"
expect "gVisor with --allow-suid" "a setuid id, run by 1000, is 0" "$(run "${gvisor[@]}" --allow-suid)"
if command -v runc >/dev/null; then
  expect runc "a setuid id, run by 1000, is 0" "$(run runc)"
fi
