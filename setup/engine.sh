#!/usr/bin/env bash
# Finds a container engine, or installs Podman (Debian and Ubuntu). `rollbox up` starts its service by itself.
set -euo pipefail

if [ -n "${DOCKER_HOST:-}" ] || [ -S /var/run/docker.sock ] || [ -S /run/podman/podman.sock ]; then
  exit 0
fi
if command -v podman >/dev/null && command -v runc >/dev/null; then
  exit 0
fi
# The network plugins are needed although sandboxes have no network: Podman does not start without a network backend.
"$(dirname "$0")/packages.sh" podman runc conmon containernetworking-plugins || {
  echo "No container engine was found: start Docker, or install podman and runc, and run this again." >&2
  exit 1
}
podman --version
