#!/usr/bin/env bash
# Builds the programs of `rollbox up` for a first run into the virtual environment of this checkout: all in one build,
# without link-time optimisation and hardly optimised (the profile `quick`). Those of the same sources that `make build` has put there
# stay.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
programs=(rollbox-gateway rollbox-egress rollbox-sidecar rollbox-target)
source setup/listed.sh

built() {
  local program
  for program in "${programs[@]}"; do [ -x "$bin/$program" ] || return 1; done
  [ "$(cat $bin/.programs 2>/dev/null)" = "$(digest_sources .)" ]
}

! built || exit 0
source setup/sources.sh
host=$(rustc -vV | sed -n 's/^host: //p')
# Static, and with --target, for the reasons of setup/static.sh.
CARGO_TARGET_DIR=$rust_home/static RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" \
  cargo build --locked --quiet --profile quick --target "$host" --manifest-path "$rust_sources/gateway-rs/Cargo.toml" \
  --package gateway --package egress --package sidecar --bins 9>&-
mkdir -p $bin
install --compare --mode 755 "${programs[@]/#/$rust_home/static/$host/quick/}" $bin/
digest_sources "$rust_sources" > $bin/.programs
