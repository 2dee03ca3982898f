#!/usr/bin/env bash
# Builds the gateway's Python module for the tests into the virtual environment of this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
source setup/sources.sh
# The same profile (unoptimised) and features as `cargo test`, so that both share their compiled dependencies;
# --examples enables the features of development dependencies.
CARGO_TARGET_DIR=$rust_target cargo build --locked --quiet --manifest-path "$rust_sources/gateway-rs/Cargo.toml" \
  --workspace --lib --examples 9>&-
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
# A package of this name, as maturin installs it, would be imported instead.
rm -rf "$packages/rollbox_gateway"
install --compare --mode 755 "$rust_target/debug/librollbox_gateway.so" "$packages/rollbox_gateway.abi3.so"
