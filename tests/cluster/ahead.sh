#!/usr/bin/env bash
# Makes what takes minutes on a fresh machine and needs no cluster yet: the toolchain, and bases of the named images.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/cluster/toolchain/build.sh >/dev/null
nice -n 10 setup/engine.sh
nice -n 10 images/build.sh --bases "$@"
