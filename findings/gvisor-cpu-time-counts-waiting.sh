#!/usr/bin/env bash
# gVisor: a program's CPU time counts while it waits for a processor that others have: the same work is charged
# several times over on a busy host, and RLIMIT_CPU ends it early.
# Needs root, Go, a merged /usr with python3; with runc in PATH the same bundle is compared. Minutes the first time.
set -euo pipefail
version=v0.0.0-20260905035102-160fafc42237
work=$(mktemp -d)
trap 'kill "${hogs[@]}" 2>/dev/null || :; umount -q "$work/state/null-netns" || :; rm -rf "$work"' EXIT
CGO_ENABLED=0 GOBIN=$work go install "gvisor.dev/gvisor/runsc@$version"
echo "runsc of gvisor.dev/gvisor $version"

mkdir -p "$work"/rootfs/{proc,tmp,usr,var}
ln -s usr/bin usr/lib usr/lib64 "$work/rootfs"
cat >"$work/rootfs/probe.py" <<'END'
import time

total = 0
for number in range(8_000_000):
    total += number * number
print(round(time.process_time() * 1000))
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
hogs=()

run() {  # RUNTIME [FLAG...]: what the probe prints in it
  "$@" --root "$work/state" run --bundle "$work" "finding-$$" 2>&1
}
gvisor=("$work/runsc" --network=none --ignore-cgroups)
expect() {  # WHERE EXPECTED SEEN
  echo "$1: $3"
  [[ $3 == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}

alone=$(taskset -c 0 /usr/bin/python3 "$work/rootfs/probe.py")
for _ in 1 2 3; do
  timeout 120 taskset -c 0 sh -c 'while :; do :; done' &
  hogs+=($!)
done
times() {  # MS: how often the work's own time
  (($1 >= 2 * alone)) && echo "charged at least twice its work" || echo "charged its work"
}
echo "the work takes $alone ms of a processor; now three others share it"
seen=$(run taskset -c 0 "${gvisor[@]}")
expect "gVisor, $seen ms" "charged at least twice its work" "$(times "$seen")"
if command -v runc >/dev/null; then
  seen=$(run taskset -c 0 runc)
  expect "runc, $seen ms" "charged its work" "$(times "$seen")"
fi
