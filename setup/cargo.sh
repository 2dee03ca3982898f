#!/usr/bin/env bash
# Runs cargo over the Rust sources of this checkout, from its root, in the place of sources.sh: cargo.sh test ARGUMENTS...
set -euo pipefail
cd "$(dirname "$0")/.."
source setup/sources.sh
export CARGO_TARGET_DIR=$rust_target
cd "$rust_sources"
# The lock is this script's: what a test leaves behind does not hold it.
cargo "$@" 9>&-
