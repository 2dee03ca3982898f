#!/usr/bin/env bash
# Builds the programs of a package as static binaries, which run in any image, into a folder:
# static.sh gateway|sidecar FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
source setup/sources.sh
case $1 in
  # It carries the calls of many: a panic ends one of them.
  gateway) panic=unwind programs=(rollbox-gateway) ;;
  # A panic ends it, as it ends its sandbox.
  sidecar) panic=abort programs=(rollbox-sidecar rollbox-target) ;;
esac
host=$(rustc -vV | sed -n 's/^host: //p')
# An own target folder with --target, so that the flags reach neither build scripts nor other artefacts.
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_PANIC=$panic CARGO_TARGET_DIR=$rust_home/static \
  RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" \
  cargo build --locked --quiet --release --target "$host" --manifest-path "$rust_sources/gateway-rs/Cargo.toml" --package "$1" 9>&-
install --compare --mode 755 "${programs[@]/#/$rust_home/static/$host/release/}" "$2/"
