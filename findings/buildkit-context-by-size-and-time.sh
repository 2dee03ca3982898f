#!/usr/bin/env bash
# BuildKit: a file of a build's context is taken for that of an earlier build of the same daemon if name, size, mode and time
# are the same, whatever is in it and wherever the context lies: contexts whose files have one fixed time, as reproducible
# builds make them, become images with old content. A nanosecond between the times is enough, and is in no layer.
# Needs root and Go. Minutes the first time.
set -euo pipefail
version=v0.34.2
work=$(mktemp -d)
trap 'kill "${daemon:-}" 2>/dev/null && wait "$daemon" || :; rm -rf "$work"' EXIT
source=$(cd "$work" && go mod download -json "github.com/moby/buildkit@$version" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
CGO_ENABLED=0 go build -C "$source" -o "$work/" ./cmd/buildkitd ./cmd/buildctl
echo "buildkitd and buildctl $version"
# No step runs, so the runtime is only looked for.
ln -s /bin/true "$work/runc"
PATH=$work:$PATH "$work/buildkitd" --root "$work/state" --addr "unix://$work/socket" --oci-worker-snapshotter native \
  --oci-worker-gc=false --containerd-worker=false --config /dev/null >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 150); do
  "$work/buildctl" --addr "unix://$work/socket" debug workers >/dev/null 2>&1 && break
  sleep 0.2
done

built() {  # NAME CONTENT TIME: the content of the file in an image from a context of its own
  mkdir "$work/$1"
  printf 'FROM scratch\nCOPY file /file\n' >"$work/$1/Dockerfile"
  printf %s "$2" >"$work/$1/file"
  touch -d "$3" "$work/$1/file" "$work/$1/Dockerfile"
  "$work/buildctl" --addr "unix://$work/socket" build --frontend dockerfile.v0 --local "context=$work/$1" \
    --local "dockerfile=$work/$1" --output "type=local,dest=$work/$1-out" >"$work/$1-log" 2>&1 || cat "$work/$1-log" >&2
  cat "$work/$1-out/file"
}
expect() {  # WHAT EXPECTED SEEN
  echo "$1: $3"
  [[ $3 == "$2" ]] || { echo "the finding says: $2" >&2; exit 1; }
}

expect "the first context, with 'one'" one "$(built first one 1980-01-02T00:00:00Z)"
expect "another context, with 'two' of the same time" one "$(built second two 1980-01-02T00:00:00Z)"
expect "a third one, with 'two' a nanosecond later" two "$(built third two 1980-01-02T00:00:00.000000001Z)"
