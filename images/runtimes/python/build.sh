#!/usr/bin/env bash
# Builds localhost/rollbox/python:1 in the local engine: from the public base if its registry is reachable, else from
# Debian packages (the tarball is cached). Does nothing if the image exists.
set -euo pipefail
here=$(dirname "$0")
image=localhost/rollbox/python:1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/images
suite=bookworm

if [ -S /var/run/docker.sock ] || [ -n "${DOCKER_HOST:-}" ]; then
  engine=docker
else
  engine=podman
fi
if $engine image inspect $image >/dev/null 2>&1; then
  exit 0
fi
echo "== Runtime image $image"
base=$(sed -n 's/^ARG BASE=//p' "$here/Dockerfile")
if timeout 120 $engine pull --quiet "$base" >/dev/null 2>&1; then
  $engine tag "$base" $image
  exit 0
fi
echo "   the public base image cannot be pulled: building one from Debian packages"
tarball=$cache/python-$suite-2.tar
if [ ! -s "$tarball" ]; then
  command -v mmdebstrap >/dev/null || "$here/../../../setup/packages.sh" mmdebstrap
  mkdir -p "$cache"
  # mmdebstrap copies these files from this machine.
  mmdebstrap --quiet --variant=minbase --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' --include=python3,ca-certificates,procps $suite "$tarball.part.tar"
  mv "$tarball.part.tar" "$tarball"
fi
$engine import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'CMD ["python3"]' "$tarball" $image >/dev/null
