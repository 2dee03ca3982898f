#!/usr/bin/env python3
"""Compiles a crate of the workspace so that its lines and branches are counted; cargo calls it for these crates only.

It is no shell script: cargo's CARGO_BIN_EXE_rollbox-sidecar has a name that some shells do not hand on.
"""

import os
import sys

COUNTED = (
    "-Cinstrument-coverage",
    # Unstable, as is the last one; hence the variable below, which dependencies do not get.
    "-Zcoverage-options=branch",
    # Counters that can be a mapped file outlive a process that is killed or leaves by _exit.
    "-Cllvm-args=-runtime-counter-relocation",
    # The reader may come without zlib.
    "-Cllvm-args=-enable-name-compression=false",
    # Where a program writes its counters; before its own objects, whose answer is a file in the working directory.
    f"-Zpre-link-arg={os.environ['COVERAGE_NAME']}",
)

if __name__ == "__main__":
    os.execvpe(sys.argv[1], [*sys.argv[1:], *COUNTED], {**os.environ, "RUSTC_BOOTSTRAP": "1"})
