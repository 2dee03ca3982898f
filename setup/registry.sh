#!/usr/bin/env bash
# Installs an image registry for the tests (Debian and Ubuntu) if there is none. Tests start it themselves; its service
# is not enabled.
set -euo pipefail

if command -v docker-registry >/dev/null; then
  exit 0
fi
"$(dirname "$0")/packages.sh" docker-registry || {
  echo "There is no docker-registry: install CNCF Distribution under this name, and run this again." >&2
  exit 1
}
docker-registry --version
