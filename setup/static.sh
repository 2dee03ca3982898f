#!/usr/bin/env bash
# Builds one package of the workspace as static binaries for any image and prints their folder:
# static.sh PACKAGE unwind|abort (what a panic does).
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
# An own target folder with --target, so that the flags reach neither build scripts nor other artefacts.
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_PANIC=$2 CARGO_TARGET_DIR="$CARGO_TARGET_DIR/static" \
  RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" \
  cargo build --locked --quiet --release --target "$host" --manifest-path gateway-rs/Cargo.toml --package "$1"
echo "$CARGO_TARGET_DIR/static/$host/release"
