#!/usr/bin/env bash
# Builds what a cluster runs, all or the named components, each into a cache outside the checkout.
# Prints "<component> <folder>" lines; seconds go to stderr. A component is built again only when its folder here, or the Go version, changed.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
node=$(realpath ../../../node-go)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/cluster
components=("$@")
[ $# -gt 0 ] || components=(kubernetes etcd containerd gvisor pause coredns cilium helm snapshotter)
packages=(docker-registry redis-server redis-tools skopeo runc containernetworking-plugins nftables iptables
  ipset iproute2 conntrack ethtool bpftool clang-19 busybox-static)
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
# Two at once: others work on the machine too, and more compilers than that need more memory than time they save.
build=(nice -n 10 go build -p "${ROLLBOX_BUILD_JOBS:-2}" -trimpath)

say() { echo "$*" >&2; }

version() { go list -m -f '{{.Version}}' "$1"; }

kubernetes() {
  local tag name flags=""
  tag=$(version k8s.io/kubernetes)
  for name in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $name.gitVersion=$tag -X $name.gitMajor=1 -X $name.gitMinor=$(cut -d. -f2 <<<"$tag")"
    flags+=" -X $name.gitTreeState=clean"
  done
  "${build[@]}" -ldflags "-s -w $flags" -o "$1/bin/kubernetes" .
  for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -s kubernetes "$1/bin/$name"
  done
}

# Debian's 3.4 starves watches while it answers large lists: with thousands of pods the API server's own watch stands
# still for minutes, and its cache with it (etcd-io/etcd issue 15402).
etcd() {
  "${build[@]}" -ldflags "-s -w" -o "$1/bin/" tool
  mv "$1/bin/server" "$1/bin/etcd"
}

containerd() {
  "${build[@]}" -tags no_btrfs -ldflags "-s -w" -o "$1/bin/" tool
}

# A vendored copy, because files in the module cache can be neither changed nor overlaid. One shim for all containers of a
# pod, as runc's, where gVisor's default is one for each, and only a file outside of any folder of ours changes that; and
# statistics without a process for each.
gvisor() {
  local shim=vendor/gvisor.dev/gvisor/pkg/shim/v1
  cp go.mod go.sum "$1"
  mkdir "$1/usage"
  cp "$node/internal/usage/usage.go" "$1/usage/"
  cd "$1"
  go mod vendor
  cp "$here/gvisor/oom_linux.go" vendor/github.com/containerd/containerd/v2/pkg/sys/oom_linux.go
  cp "$here/gvisor/stats_linux.go" $shim/runsc/
  replace $shim/runsc/service.go 'return c.Stats(ctx)' 'return s.usageOf(ctx, c)'
  replace $shim/manager.go 'return opts.Grouping' 'return true'
  "${build[@]}" -mod=vendor -ldflags "-s -w" -o "$1/bin/" tool
  mv "$1/bin/shim" "$1/bin/containerd-shim-runsc-v1"
  rm -rf vendor go.mod go.sum usage
}

# Replaces words that a file has once.
replace() {
  [ "$(grep -cF "$2" "$1")" = 1 ] || { say "$1 has not one line with: $2"; exit 1; }
  sed -i "s/$2/$3/" "$1"
}

pause() { cc -Os -static -s -o "$1/bin/pause" pause.c; }

coredns() { "${build[@]}" -ldflags "-s -w" -o "$1/bin/coredns" .; }

cilium() {
  "${build[@]}" -ldflags "-s -w -X github.com/cilium/cilium/pkg/version.ciliumVersion=$(version github.com/cilium/cilium | tr -d v)" \
    -o "$1/bin/" tool
  mv "$1/bin/daemon" "$1/bin/cilium-agent"
  mv "$1/bin/operator" "$1/bin/cilium-operator"
  ln -s "$(command -v clang-19)" "$1/bin/clang"
  mkdir "$1/share"
  # Has a folder only now that it is downloaded.
  local source
  source=$(go list -m -f '{{.Dir}}' github.com/cilium/cilium)
  cp -r "$source/bpf" "$source/pkg/k8s/apis/cilium.io/client/crds" "$1/share/"
  chmod -R u+w "$1/share"
}

helm() { "${build[@]}" -ldflags "-s -w" -o "$1/bin/" tool; }

# Only where it is named: for the image that builds images.
buildkit() { "${build[@]}" -ldflags "-s -w -X github.com/moby/buildkit/version.Version=$(version github.com/moby/buildkit)" -o "$1/bin/" tool; }

# Simulated nodes. Only where it is named: no test of the real node needs it.
kwok() { "${build[@]}" -ldflags "-s -w" -o "$1/bin/" tool; }

# Docker's command line with Compose, for what calls it over another engine's socket. Only where it is named.
docker() {
  local versions
  versions="-X github.com/docker/cli/cli/version.Version=$(version github.com/docker/cli | cut -d+ -f1 | tr -d v)"
  versions+=" -X github.com/docker/compose/v2/internal.Version=$(version github.com/docker/compose/v2)"
  "${build[@]}" -ldflags "-s -w $versions" -o "$1/bin/" tool
  mv "$1/bin/cmd" "$1/bin/docker-compose"
}

# Programs of ours: the part of a node that the product brings, and what makes images for it.
snapshotter() {
  cd "$node"
  "${build[@]}" -ldflags "-s -w" -o "$1/bin/" ./cmd/rollbox-snapshotter ./cmd/rollbox-convert
}

# What a component is made of.
sources_of() {
  if [ -d "$1" ]; then
    tail -n +1 "$1"/*
    [ "$1" != gvisor ] || tail -n +1 "$node"/internal/usage/usage.go
  else
    (cd "$node" && find go.* {cmd/rollbox-,internal/}{snapshotter,convert} -type f ! -name '*_test.go' | sort | xargs tail -n +1)
  fi
}

folder_of() {
  local hash
  hash=$( { go version; sources_of "$1"; sed -n "/^$1() /,/^}/p" build.sh; } | sha256sum | cut -c1-12)
  echo "$cache/$1-$hash"
}

make_one() {
  local name=$1 folder=$2 began=$SECONDS
  say "== $name"
  rm -rf "$cache/$name"-*.part
  mkdir -p "$folder.part/bin"
  ( if [ -d "$name" ]; then cd "$name"; fi && "$name" "$folder.part")
  mv -T "$folder.part" "$folder"
  say "   $name: $((SECONDS - began)) s"
}

main() {
  mkdir -p "$cache"
  local name folder
  # Helm alone serves the tests of the chart, which need no cluster; kwok, BuildKit and Docker need nothing beside them.
  case "${components[*]}" in
    helm | kwok | buildkit | docker) ;;
    *) ../../../setup/packages.sh "${packages[@]}" ;;
  esac
  for name in "${components[@]}"; do
    exec 9> "$cache/$name.lock"
    flock 9
    folder=$(folder_of "$name")
    [ -d "$folder" ] || make_one "$name" "$folder"
    echo "$name $folder"
  done
  say "toolchain: $SECONDS s"
}

main
