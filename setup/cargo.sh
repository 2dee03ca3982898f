#!/usr/bin/env bash
# Runs cargo on the Rust sources of this checkout, in the shared folder of sources.sh: cargo.sh test ARGUMENTS...
set -euo pipefail
cd "$(dirname "$0")/.."
source setup/sources.sh
export CARGO_TARGET_DIR=$rust_target
cd "$rust_sources"
# Closes the lock's descriptor (9) for cargo, so that a process which outlives a test does not hold the lock.
cargo "$@" 9>&-
