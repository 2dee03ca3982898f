#!/usr/bin/env bash
# Makes the virtual environment of this checkout as `rollbox up` and the demo need it. `make venv` adds what tests need.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

if [ ! .venv/.installed -nt requirements/dev.txt ] && [ ! .venv/.ready -nt requirements/demo.txt ]; then
  [ -x $bin/python ] || "${PYTHON:-python3}" -m venv .venv
  # Modules are compiled when they are imported: most never are.
  $bin/python -m pip install --quiet --no-compile --require-hashes --requirement requirements/demo.txt
  touch .venv/.ready
fi
if [ ! -x $bin/rollbox ] || [ ! -x $bin/rollbox-docker ]; then
  $bin/python -m pip install --quiet --no-deps --no-build-isolation --editable sdk --editable bridges --editable .
fi
