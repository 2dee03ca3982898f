#!/usr/bin/env bash
# Builds images and pushes those that the registry lacks: build.sh [--bases] [NAME...]; without names, all images.
# With --bases it only pulls or builds their base images on this machine, which needs no registry to push to.
# ROLLBOX_REGISTRY: host and folder to push to; default: localhost:5000/rollbox. An image's tag is the digest of its
# content, so an unchanged image costs only a query of the registry; then the tag of the chart's version is set to it.
# The runtime images are put there in the form that nodes mount lazily, which is an ordinary image too, with the files first
# that a usual start reads (images/runtimes/first.sh). ROLLBOX_ORDERED: names of those that are.
# build/images.yaml gets the names of exactly these images, for `helm install --values`. Prints a table of sizes.
set -euo pipefail
# Failures inside $(...) end the script too.
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
registry=${ROLLBOX_REGISTRY:-localhost:5000/rollbox}
version=$(sed -n 's/^appVersion: "\(.*\)"/\1/p' helm/Chart.yaml)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/cargo/$(rustc --version | tr ' ()' '---')}
work=build/images
names=(gateway egress packages controlplane sidecar mirror node installer scheduler dns redis distribution builder python swe)

if [ -S /var/run/docker.sock ] || [ -n "${DOCKER_HOST:-}" ]; then
  engine=docker
else
  engine=podman
fi
# A registry on localhost is one of the tests, without TLS; Docker allows that by default, Podman needs an option.
insecure=()
case $engine:$registry in podman:localhost[:/]* | podman:127.0.0.1[:/]*) insecure=(--tls-verify=false) ;; esac

# To run something in an image Podman needs a runtime that works with hybrid cgroups (older hosts), so runc is preferred to
# crun.
run_options=()
[ $engine = docker ] || run_options=(--runtime "$(command -v runc || command -v crun)")

source images/bases.sh
source images/contexts.sh

fail() {
  echo "images: $*" >&2
  exit 1
}

folder_of() {
  case $1 in python | swe) echo "images/runtimes/$1" ;; *) echo "images/$1" ;; esac
}

in_registry() {
  if command -v skopeo >/dev/null; then
    skopeo inspect ${insecure[@]:+"${insecure[@]}"} --raw "docker://$1" >/dev/null 2>&1
  else
    $engine manifest inspect ${insecure[@]:+"${insecure[@]}"} "$1" >/dev/null 2>&1
  fi
}

digest_of() {
  (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum && echo "$2") | sha256sum | cut -c1-16
}

build_image() {
  local options=(--quiet --build-arg "BASE=$3" --tag "$2")
  [ $engine = docker ] || options+=("${run_options[@]}" --network none)
  case $1 in swe) [ "$3" = "$(fallback_name swe)" ] || options=("${options[@]/none/host}") ;; esac
  $engine build "${options[@]}" "$work/$1" >/dev/null || fail "building $1 failed"
}

push_image() {
  $engine push --quiet ${insecure[@]:+"${insecure[@]}"} "$1" >/dev/null ||
    fail "pushing $1 failed: is the registry up? (ROLLBOX_REGISTRY=$registry)"
}

make_image() {
  local name=$1 base tag image
  rm -rf "${work:?}/$name"
  mkdir -p "$work/$name"
  cp "$(folder_of "$name")/Dockerfile" "$work/$name/"
  "context_$name" "$work/$name"
  # No image has them: what comes first in one, and what puts it there, are a part of its tag.
  if is_ordered "$name"; then
    cp images/runtimes/first.sh "$work/$name/"
    setup/go.sh rollbox-convert "$work/$name"
  fi
  base=$(base_of "$name")
  tag=$(digest_of "$work/$name" "$base")
  image=$registry/$name:$tag
  $engine image inspect "$image" >/dev/null 2>&1 || build_image "$name" "$image" "$base"
  if ! in_registry "$image"; then
    put "$name" "$image" "$image"
    echo "   pushed $image" >&2
  fi
  if [ "$(cat "$work/$name.version" 2>/dev/null)" != "$image" ] || ! in_registry "$registry/$name:$version"; then
    put "$name" "$image" "$registry/$name:$version"
    echo "$image" > "$work/$name.version"
  fi
  echo "$image"
}

# Puts an image into the registry under a name.
put() {
  if is_ordered "$1"; then
    put_ordered "$@"
    return
  fi
  [ "$2" = "$3" ] || $engine tag "$2" "$3"
  push_image "$3"
}

is_ordered() {
  case " ${ROLLBOX_ORDERED-python swe} " in *" $1 "*) ;; *) return 1 ;; esac
}

# The same with the files first that a usual start reads. What is converted stays in a folder beside, of this tag alone: the
# second name costs no second conversion. The converter reaches a registry by its own means, which are less than those of
# the engine (its certificates, its logins, another machine's network), so where it fails the plain image is put there.
put_ordered() {
  local plain=$registry/$1:plain folder=$work/$1.converted tag=${2##*:} insecurely=() options=("${run_options[@]}")
  [ ${#insecure[@]} = 0 ] || insecurely=(-insecure)
  $engine tag "$2" "$plain"
  push_image "$plain"
  # By itself Podman gives it more than a container of a build may have.
  [ $engine = docker ] || options+=(--ulimit nofile=1024:1024 --ulimit nproc=512:512)
  $engine run --rm --interactive --network none ${options[@]:+"${options[@]}"} --entrypoint /bin/sh "$2" -s \
    < images/runtimes/first.sh > "$work/$1.first" || fail "$1 does not tell what its start reads"
  mkdir -p "$folder"
  find "$folder" -mindepth 1 -maxdepth 1 ! -name "$tag" -exec rm -rf {} +
  "$work/$1/rollbox-convert" ${insecurely[@]:+"${insecurely[@]}"} -first "$work/$1.first" -folder "$folder/$tag" "$plain" "$3" \
    >/dev/null && return
  echo "   $1 is pushed as a plain image, which works too and starts later where nodes mount lazily, since rollbox-convert failed; ROLLBOX_ORDERED= does without it" >&2
  # For this image alone: each is made in a shell of its own.
  ROLLBOX_ORDERED=
  put "$@"
}

main() {
  local name image began=$SECONDS only=
  [ "${1:-}" != --bases ] || { only=bases; shift; }
  [ $# -gt 0 ] || set -- "${names[@]}"
  if [ "$only" = bases ]; then
    for name in "$@"; do base_of "$name" >/dev/null; done
    return
  fi
  mkdir -p "$work"
  echo "== Images for $registry"
  for name in "$@"; do
    image=$(make_image "$name")
    echo "$image" > "$work/$name.image"
  done
  write_values > build/images.yaml
  sizes "$@"
  echo "   $((SECONDS - began)) s; chart values in build/images.yaml"
}

write_values() {
  local name
  printf 'images:\n  registry: %s\n' "$registry"
  for name in gateway egress packages controlplane sidecar mirror node installer scheduler dns redis distribution builder; do
    [ ! -e "$work/$name.image" ] || printf '  %s: %s\n' "$name" "$(cat "$work/$name.image")"
  done
  [ ! -e "$work/python.image" ] || printf '  runtime: %s\n' "$(cat "$work/python.image")"
}

sizes() {
  local name image bytes
  for name in "$@"; do
    image=$(cat "$work/$name.image")
    bytes=$($engine image inspect --format '{{.Size}}' "$image")
    awk -v name="$name" -v bytes="$bytes" -v image="$image" 'BEGIN { printf "   %-13s %7.1f MB  %s\n", name, bytes / 1e6, image }'
  done
}

main "$@"
