#!/usr/bin/env bash
# Builds the Rust parts and installs them into the virtual environment of this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

source setup/listed.sh

echo "== Rust: gateway, egress, sidecar, target, the gateway's Python module; usually nine minutes, the first time"
began=$SECONDS
programs_of=$(digest_sources .)
# In parallel with the binaries, whose link-time optimisation uses only one core for minutes. In a process group of its
# own (set -m), so that all its processes can be killed together.
set -m
setup/module.sh &
module=$!
set +m
trap 'kill -- -$module 2>/dev/null || true' EXIT
setup/static.sh gateway $bin
setup/static.sh egress $bin
setup/static.sh sidecar $bin
wait $module
trap - EXIT
# For setup/quick.sh, which has nothing to do then.
echo "$programs_of" > $bin/.programs
echo "   $((SECONDS - began)) s"
setup/python.sh
