#!/usr/bin/env bash
# swe-rex: with TERM set to a terminal's name the output of every command in a session is framed in line ends; without it,
# or with `dumb`, it is what the command wrote.
# Needs python3 (3.10 or later) and bash.
set -euo pipefail
version=1.4.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "swe-rex==$version"
echo "swe-rex $version"

cat >"$work/probe.py" <<'END'
import asyncio
import logging

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime


async def main():
    logging.disable()
    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest(startup_timeout=60))
    print(repr((await runtime.run_in_session(BashAction(command="echo hi", timeout=60))).output))
    await runtime.close()


asyncio.run(main())
END
expect() {  # TERM EXPECTED
  local seen
  seen=$(TERM=$1 "$work/venv/bin/python" "$work/probe.py")
  echo "TERM=$1: $seen"
  [[ $seen == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}
expect dumb "'hi\n'"
expect xterm-256color "'\r\nhi\n\r\n\r\n'"
