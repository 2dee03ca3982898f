#!/usr/bin/env bash
# Finds a container engine, or installs Podman (Debian and Ubuntu). `rollbox up` starts its service by itself.
set -euo pipefail

if [ -n "${DOCKER_HOST:-}" ] || [ -S /var/run/docker.sock ] || [ -S /run/podman/podman.sock ]; then
  exit 0
fi
if command -v podman >/dev/null && command -v runc >/dev/null; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "No container engine was found and it cannot be installed here: start Docker, or install podman and runc, and run this again." >&2
  exit 1
fi
echo "== Container engine: installing Podman"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# The network plugins are needed although sandboxes are offline: Podman does not start without a network backend.
apt-get install -y -qq --no-install-recommends podman runc conmon containernetworking-plugins >/dev/null
podman --version
