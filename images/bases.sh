# Base images; sourced by build.sh. The base is the public one that the Dockerfile names if its registry is reachable,
# else one that is built here from Debian packages (the tarballs are cached).
suite=bookworm
bases=$cache/images

base_of() {
  local public fallback
  public=$(sed -n 's/^ARG BASE=//p' "$(folder_of "$1")/Dockerfile")
  fallback=$(fallback_name "$1")
  if [ "$public" = scratch ] || $engine image inspect "$public" >/dev/null 2>&1; then
    echo "$public"
  elif $engine image inspect "$fallback" >/dev/null 2>&1; then
    echo "$fallback"
  elif timeout 120 $engine pull --quiet "$public" >/dev/null 2>&1; then
    echo "$public"
  else
    echo "   $1: the public base image cannot be pulled, building one from Debian packages" >&2
    make_base "$1" "$fallback"
    echo "$fallback"
  fi
}

# The tag is a digest of the package list and of how the base is built, so a change of either gives another base.
fallback_name() {
  local list
  list=$(echo "$suite"; declare -f debian_tarball; cat "$(folder_of "$1")/packages.txt" 2>/dev/null || true; [ "$1" != builder ] || cat tests/cluster/toolchain/buildkit/go.mod)
  echo "localhost/rollbox/base-$1:$(sha256sum <<<"$list" | cut -c1-12)"
}

make_base() {
  local tarball
  mkdir -p "$bases"
  tarball=$bases/$(basename "${2/:/-}").tar
  # Another run that makes the same base is waited for. The lock ends with this shell, or where the next base is made.
  exec 8> "$tarball.lock"
  flock 8
  if [ ! -s "$tarball" ]; then
    rm -f "$tarball".part.*
    if [ "$1" = dns ]; then
      coredns_tarball "$tarball.part.tar"
    elif [ "$1" = scheduler ]; then
      scheduler_tarball "$tarball.part.tar"
    elif [ "$1" = builder ]; then
      builder_tarball "$tarball.part.tar"
    else
      debian_tarball "$1" "$tarball.part.tar" >"$tarball.log" 2>&1 || fail "making a base for $1 failed: $(tail -n 20 "$tarball.log")"
    fi
    mv "$tarball.part.tar" "$tarball"
  fi
  $engine import --quiet "$tarball" "$2" >/dev/null
}

debian_tarball() {
  local packages variant=essential options=() path
  command -v mmdebstrap >/dev/null || setup/packages.sh mmdebstrap
  packages=usr-is-merged,$(paste -sd, "$(folder_of "$1")/packages.txt")
  # Runtime images need apt, since users install packages in them; the images of the platform's parts do not.
  case $1 in python | swe) variant=minbase ;; esac
  # Merges /usr before the first package is installed; otherwise Debian installs Perl to do it.
  options+=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr)
  # mmdebstrap copies these files from this machine.
  options+=('--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"')
  for path in doc man locale info; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
  mmdebstrap --quiet --variant=$variant "${options[@]}" --include="$packages" $suite "$2"
}

coredns_tarball() {
  local folder
  folder=$(tests/cluster/toolchain/build.sh coredns | sed -n 's/^coredns //p')
  tar --create --file "$1" --owner 0 --group 0 --directory "$folder/bin" coredns
}

# One binary is all of Kubernetes, by the name that it is called by.
scheduler_tarball() {
  local folder
  folder=$(tests/cluster/toolchain/build.sh kubernetes | sed -n 's/^kubernetes //p')
  tar --create --file "$1" --owner 0 --group 0 --directory "$folder/bin" \
    --transform 's,^kubernetes$,usr/local/bin/kube-scheduler,' kubernetes
}

# Debian has runc, and no BuildKit.
builder_tarball() {
  local folder
  folder=$(tests/cluster/toolchain/build.sh buildkit | sed -n 's/^buildkit //p')
  debian_tarball builder "$1" >"$1.log" 2>&1 || fail "making a base for builder failed: $(tail -n 20 "$1.log")"
  tar --append --file "$1" --owner 0 --group 0 --directory "$folder/bin" --transform 's,^,usr/bin/,' buildkitd buildctl
}
