#!/bin/sh
# Compiles a crate of the workspace so that its lines and branches are counted; cargo calls it for these crates only.
# The unstable flag is for branches. Counters are relocatable, so that they can be a mapped file, which outlives a
# process that is killed or leaves by _exit. Names are not compressed: the reader may come without zlib.
RUSTC_BOOTSTRAP=1 exec "$@" -C instrument-coverage -Z coverage-options=branch \
  -C llvm-args=-runtime-counter-relocation -C llvm-args=-enable-name-compression=false
