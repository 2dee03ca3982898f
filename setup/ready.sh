#!/usr/bin/env bash
# What `rollbox up` and the demo need, and nothing that only tests use: programs, Python packages, an engine and an
# image, all of them at the same time. What is there already is left as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
began=$SECONDS
declare -A names=()

# begin NAME WHAT COMMAND...: in a process group of its own (set -m), so that all its processes can be ended together.
begin() {
  local name=$1
  echo "== $name: $2"
  shift 2
  set -m
  "$@" &
  set +m
  names[$!]=$name
}

end_all() {
  local group
  for group in "${!names[@]}"; do kill -- "-$group" 2>/dev/null || true; done
}

image() {
  setup/engine.sh && images/runtimes/python/build.sh
}

trap end_all EXIT
begin programs "gateway, egress, sidecar and target from Rust, quickly compiled; usually two to three minutes, the first time" setup/quick.sh
begin packages "control plane, SDK and their Python packages; usually a minute, the first time" setup/python.sh
begin image "a container engine if there is none, and an image with Python; usually a minute, the first time" image
while [ ${#names[@]} != 0 ]; do
  status=0
  wait -n -p ended "${!names[@]}" || status=$?
  [ $status = 0 ] || { echo "== ${names[$ended]}: failed" >&2 && exit 1; }
  echo "   ${names[$ended]}: ready after $((SECONDS - began)) s"
  unset "names[$ended]"
done
