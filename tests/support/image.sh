# What the images of tests have in common; sourced by their build.sh in the root of the repository, with `set -euo pipefail`.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/images

if [ -S /var/run/docker.sock ] || [ -n "${DOCKER_HOST:-}" ]; then
  engine=docker
else
  engine=podman
fi

# Debian's packages alone, as a tarball: debian_packages LIST TARBALL.
debian_packages() {
  local options path
  # mmdebstrap copies these files from this machine.
  options=('--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"')
  command -v mmdebstrap >/dev/null || setup/packages.sh mmdebstrap
  for path in doc man locale info; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
  mmdebstrap --quiet --variant=minbase "${options[@]}" --include="$(paste -sd, "$1")" bookworm "$2"
}

# As images/build.sh does it: pushed IMAGE FOLDER prints its name in that folder of a registry.
pushed() {
  local there=$2/${1##*/} insecure=()
  case $engine:$2 in podman:localhost[:/]* | podman:127.0.0.1[:/]*) insecure=(--tls-verify=false) ;; esac
  if ! $engine manifest inspect ${insecure[@]:+"${insecure[@]}"} "$there" >/dev/null 2>&1; then
    $engine tag "$1" "$there"
    $engine push --quiet ${insecure[@]:+"${insecure[@]}"} "$there" >/dev/null
  fi
  echo "$there"
}

# Makes an image by `make_image` where there is none, and prints its name: provide NAME IMAGE [REGISTRY]. Tests that run
# at the same time want it at the same time.
provide() {
  mkdir -p "$cache"
  exec 9>"$cache/$1.lock"
  flock 9
  if ! $engine image inspect "$2" >/dev/null 2>&1; then
    echo "== Image $2" >&2
    make_image >&2
  fi
  if [ $# = 2 ]; then echo "$2"; else pushed "$2" "$3"; fi
}
