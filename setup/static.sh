#!/usr/bin/env bash
# Builds the binaries of a package, static so that they run in any image, into a folder:
# static.sh gateway|egress|sidecar FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
source setup/sources.sh
case $1 in
  # Gateway and egress serve many callers, so a panic must end only one call or connection.
  gateway | egress) panic=unwind programs=("rollbox-$1") ;;
  # The sidecar serves one sandbox, which a panic ends.
  sidecar) panic=abort programs=(rollbox-sidecar rollbox-target) ;;
esac
host=$(rustc -vV | sed -n 's/^host: //p')
# A target folder of its own, and --target, so that the flags apply neither to build scripts nor to other artefacts.
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_PANIC=$panic CARGO_TARGET_DIR=$rust_home/static \
  RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" \
  cargo build --locked --quiet --release --target "$host" --manifest-path "$rust_sources/gateway-rs/Cargo.toml" --package "$1" 9>&-
install --compare --mode 755 "${programs[@]/#/$rust_home/static/$host/release/}" "$2/"
