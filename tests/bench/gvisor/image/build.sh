#!/usr/bin/env bash
# Builds an image with the runtimes whose sizes and speed are measured, in the local engine, and prints its name. What is
# there already is not made again. Debian has everything but a program in Go, which this machine's compiler makes.
set -euo pipefail
cd "$(dirname "$0")/../../../.."
here=tests/bench/gvisor/image
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/images
suite=trixie
tag=$(cat $here/packages.txt $here/build.sh | sha256sum | cut -c1-12)
image=localhost/rollbox/runtimes:$tag
work=$cache/runtimes-$tag.part

if [ -S /var/run/docker.sock ] || [ -n "${DOCKER_HOST:-}" ]; then
  engine=docker
else
  engine=podman
fi

base() {
  local options path
  # mmdebstrap copies these files from this machine.
  options=('--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"')
  command -v mmdebstrap >/dev/null || setup/packages.sh mmdebstrap
  # Java's package wants the folders of manuals.
  for path in doc locale info; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
  mmdebstrap --quiet --variant=minbase "${options[@]}" --include="$(paste -sd, $here/packages.txt)" $suite "$work/image.tar"
}

processors() {
  printf '%s\n' 'package main' 'import ("fmt"; "runtime")' 'func main() { fmt.Println(runtime.GOMAXPROCS(0)) }' > "$work/main.go"
  mkdir -p "$work/root/usr/local/bin"
  CGO_ENABLED=0 go build -ldflags '-s -w' -o "$work/root/usr/local/bin/go-processors" "$work/main.go"
}

main() {
  mkdir -p "$cache"
  exec 9>"$cache/runtimes.lock"
  flock 9
  if ! $engine image inspect "$image" >/dev/null 2>&1; then
    echo "== Image $image" >&2
    rm -rf "$work"
    mkdir -p "$work"
    for part in base processors; do $part >&2; done
    tar --append --file "$work/image.tar" --directory "$work/root" --owner 0 --group 0 ./usr/local/bin/go-processors
    $engine import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
      --change 'CMD ["bash"]' "$work/image.tar" "$image" >/dev/null
    rm -rf "$work"
  fi
  echo "$image"
}

main "$@"
