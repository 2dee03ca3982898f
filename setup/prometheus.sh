#!/usr/bin/env bash
# Installs Prometheus with promtool for the tests (Debian and Ubuntu) if there is none. Tests start it themselves; its
# service is not enabled.
set -euo pipefail

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  exit 0
fi
"$(dirname "$0")/packages.sh" prometheus || {
  echo "There is no prometheus: install Prometheus 2.42 or later with promtool, and run this again." >&2
  exit 1
}
prometheus --version 2>&1 | head -1
