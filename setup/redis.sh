#!/usr/bin/env bash
# Installs a Redis server for the tests (Debian and Ubuntu) if there is none. Tests start it themselves; its service is
# not enabled.
set -euo pipefail

if command -v redis-server >/dev/null; then
  exit 0
fi
"$(dirname "$0")/packages.sh" redis-server || {
  echo "There is no redis-server: install Redis 7 or later, and run this again." >&2
  exit 1
}
redis-server --version
