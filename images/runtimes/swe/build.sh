#!/usr/bin/env bash
# Builds localhost/rollbox/swe:1 in the local engine: the base that images/build.sh makes of the same packages if the
# engine has it, else one of Debian packages (the tarball is cached). Does nothing if the image exists.
set -euo pipefail
here=$(dirname "$0")
image=localhost/rollbox/swe:1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/images

if [ -S /var/run/docker.sock ] || [ -n "${DOCKER_HOST:-}" ]; then
  engine=docker
else
  engine=podman
fi
if $engine image inspect $image >/dev/null 2>&1; then
  exit 0
fi
base=$($engine images --format '{{.Repository}}:{{.Tag}}' | grep -m 1 '^localhost/rollbox/base-swe:' || true)
if [ -n "$base" ]; then
  $engine tag "$base" $image
  exit 0
fi
# Tests that run at the same time want it at the same time.
mkdir -p "$cache"
exec 9>"$cache/swe.lock"
flock 9
if $engine image inspect $image >/dev/null 2>&1; then
  exit 0
fi
echo "== Runtime image $image"
tarball=$cache/swe-bookworm-$(cat "$here/packages.txt" "$here/build.sh" | sha256sum | cut -c1-12).tar
if [ ! -s "$tarball" ]; then
  command -v mmdebstrap >/dev/null || "$here/../../../setup/packages.sh" mmdebstrap
  # As in images/bases.sh: a seventh of the image would be documentation.
  options=()
  # mmdebstrap copies these files from this machine.
  options+=('--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"')
  for path in doc man locale info; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
  mmdebstrap --quiet --variant=minbase "${options[@]}" --include="$(paste -sd, "$here/packages.txt")" bookworm "$tarball.part.tar"
  mv "$tarball.part.tar" "$tarball"
fi
$engine import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'CMD ["bash"]' "$tarball" $image >/dev/null
