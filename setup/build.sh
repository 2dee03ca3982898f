#!/usr/bin/env bash
# Builds the Rust parts and puts them into the virtual environment of this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
manifest=gateway-rs/Cargo.toml

echo "== Rust: gateway, sidecar, target"
began=$SECONDS
cargo build --locked --quiet --release --manifest-path $manifest --package gateway
# A panic ends the sidecar, as it ends its sandbox; the gateway unwinds, since it carries the calls of many.
static=$(setup/static.sh sidecar abort)
install -m 755 "$CARGO_TARGET_DIR/release/rollbox-gateway" \
  "$static/rollbox-sidecar" "$static/rollbox-target" $bin/

echo "   $((SECONDS - began)) s"

echo "== Python: gateway module, SDK, control plane"
module=gateway-rs/crates/gateway-py
stamp=$(find gateway-rs contract/*.proto contract/errors.toml -name target -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
if [ "$(cat .venv/.gateway-module 2>/dev/null)" != "$stamp" ]; then
  VIRTUAL_ENV=$PWD/.venv $bin/maturin develop --quiet --release --locked --manifest-path $module/Cargo.toml
  echo "$stamp" > .venv/.gateway-module
fi
if [ ! -x $bin/rollbox ]; then
  $bin/python -m pip install --quiet --no-deps --no-build-isolation --editable sdk --editable .
fi
