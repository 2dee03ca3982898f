#!/usr/bin/env bash
# Installs the missing ones of some packages (Debian and Ubuntu) without starting their services: packages.sh NAME...
# The product and its tests start these services themselves, on the same ports.
set -euo pipefail

find_missing() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p' || true)
  mapfile -t missing < <(printf '%s\n' "$@" | grep -vxF "$installed" || true)
}

find_missing "$@"
[ ${#missing[@]} != 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "These are not installed and cannot be installed here, which needs root on Debian or Ubuntu: ${missing[*]}" >&2
  exit 1
fi
# Test levels that are prepared in parallel may install packages too, and `apt-get update` fails instead of waiting for
# a lock.
exec 8> /run/lock/rollbox-packages
flock 8
find_missing "$@"
[ ${#missing[@]} != 0 ] || exit 0
echo "== Debian packages: ${missing[*]}" >&2
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "${missing[@]}" >&2
[ -d /run/systemd/system ] || exit 0
for package in "${missing[@]}"; do
  # Not after the next boot either.
  case $package in
    etcd-server) systemctl disable --quiet --now etcd ;;
    redis-server | docker-registry | prometheus | nginx) systemctl disable --quiet --now "$package" ;;
  esac
done
