#!/usr/bin/env bash
# Installs a Redis server for the tests (Debian and Ubuntu), where there is none. Tests start their own: its service stays off.
set -euo pipefail

if command -v redis-server >/dev/null; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "There is no redis-server and it cannot be installed here: install Redis 7 or later, and run this again." >&2
  exit 1
fi
echo "== Redis server"
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends redis-server >/dev/null
if [ -d /run/systemd/system ]; then
  systemctl disable --quiet --now redis-server  # nor after the next boot
fi
redis-server --version
