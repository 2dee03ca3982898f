#!/usr/bin/env bash
# Puts into a folder what the installer brings to nodes, with versions and digests: payload.sh FOLDER
# gVisor is built from its Go module, whose sources the checksums in go.sum pin.
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/.."
gvisor=$(tests/cluster/toolchain/build.sh gvisor | sed -n 's/^gvisor //p')
cp "$gvisor"/bin/{runsc,containerd-shim-runsc-v1} "$folder/"
setup/go.sh rollbox-snapshotter "$folder"
setup/go.sh rollbox-node "$folder"
of_gvisor=$(sed -n 's/^\tgvisor.dev\/gvisor \(v[^ ]*\).*/\1/p' tests/cluster/toolchain/gvisor/go.mod)
ours=$(sed -n 's/^appVersion: "\(.*\)"/\1/p' helm/Chart.yaml)

entry() {
  printf '  "%s": {"version": "%s", "digest": "%s"}' "$1" "$2" "$(sha256sum < "$folder/$1" | cut -c1-64)"
}

{
  printf '{\n'
  entry runsc "$of_gvisor"; printf ',\n'
  entry containerd-shim-runsc-v1 "$of_gvisor"; printf ',\n'
  entry rollbox-snapshotter "$ours"; printf ',\n'
  entry rollbox-node "$ours"; printf '\n}\n'
} > "$folder/manifest.json"
