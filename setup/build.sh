#!/usr/bin/env bash
# Builds the Rust parts and puts them into the virtual environment of this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

echo "== Rust: gateway, sidecar, target, the gateway's Python module"
began=$SECONDS
setup/static.sh gateway $bin
setup/static.sh sidecar $bin
setup/module.sh
echo "   $((SECONDS - began)) s"

if [ ! -x $bin/rollbox ]; then
  echo "== Python: SDK, control plane"
  $bin/python -m pip install --quiet --no-deps --no-build-isolation --editable sdk --editable .
fi
