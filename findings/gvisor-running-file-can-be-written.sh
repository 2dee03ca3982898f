#!/usr/bin/env bash
# gVisor: the file of a running program can be opened for writing; Linux refuses that (ETXTBSY).
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
import errno
import os
import shutil
import subprocess

shutil.copy("/usr/bin/sleep", "/var/sleep")
running = subprocess.Popen(["/var/sleep", "60"])
try:
    os.close(os.open("/var/sleep", os.O_WRONLY))
    seen = "opened"
except OSError as error:
    seen = errno.errorcode[error.errno]
running.kill()
print(f"a running program's file, for writing: {seen}")
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

expect gVisor "a running program's file, for writing: opened" "$(run "${gvisor[@]}")"
if command -v runc >/dev/null; then
  expect runc "a running program's file, for writing: ETXTBSY" "$(run runc)"
fi
