#!/usr/bin/env bash
# swe-rex: a configuration of a deployment with a name that its type does not know is no error: it becomes one of Daytona,
# whose model ignores `type` and each name that it does not know.
# Needs python3 (3.10 or later).
set -euo pipefail
version=1.4.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "swe-rex==$version"
echo "swe-rex $version"

cat >"$work/probe.py" <<'END_OF_PROBE'
import sys

from pydantic import TypeAdapter
from swerex.deployment.config import DeploymentConfig

read = TypeAdapter(DeploymentConfig).validate_python({"type": "modal", "image": "python:3.12", sys.argv[1]: 30})
print(type(read).__name__)
END_OF_PROBE
expect() {  # NAME EXPECTED
  local seen
  seen=$("$work/venv/bin/python" "$work/probe.py" "$1")
  echo "type: modal, $1: $seen"
  [[ $seen == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}
expect startup_timeout ModalDeploymentConfig
expect startup_timout DaytonaDeploymentConfig
