#!/bin/sh
# Runs a systemd of its own until its standard input ends: systemd.sh FOLDER [KEPT]
# It is process 1 of new namespaces, knows the units of FOLDER/units and no others, and answers on the message bus
# FOLDER/bus. Of /run it sees KEPT alone. Needs root, systemd and dbus-daemon; the machine's own files are there.
set -eu
folder=$1 kept=${2:-}
name=rollbox-systemd-$$

# Where control groups are, and how they are mounted: one place, or, beside those of version 1 that only limit, three.
hierarchies() {
  awk '$2 !~ "^/sys/fs/cgroup" { next }
    $3 == "cgroup2" { print $2, "cgroup2", "rw" }
    $3 == "cgroup" && $4 ~ "name=systemd" { print $2, "cgroup", "none,name=systemd" }
    $3 == "cgroup" && $4 ~ ",pids$" { print $2, "cgroup", "pids" }' /proc/mounts
}

inside() {
  mount --make-rprivate /
  # The machine's own settings are not systemd's to change here.
  mount --bind /proc/sys /proc/sys
  mount -o remount,bind,ro /proc/sys
  hierarchies | while read -r where kind options; do
    umount --lazy "$where"
    mount -t "$kind" -o "$options" cgroup "$where"
  done
  # Where it keeps what is enabled, whatever it is told.
  mount --bind "$folder/units" /etc/systemd/system
  if [ -n "$kept" ]; then
    mkdir -p "$folder/kept"
    mount --rbind "$kept" "$folder/kept"
  fi
  mount -t tmpfs tmpfs /run
  if [ -n "$kept" ]; then
    mkdir -p "$kept"
    mount --move "$folder/kept" "$kept"
  fi
  mkdir -p /run/systemd/system.conf.d
  printf '[Manager]\nDefault%sAccounting=no\nDefault%sAccounting=no\n' Memory Tasks > /run/systemd/system.conf.d/test.conf
  exec env -i container=rollbox PATH="$PATH" SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_GENERATOR_PATH="$folder/none" \
    DBUS_SYSTEM_BUS_ADDRESS="unix:path=$folder/bus" /lib/systemd/systemd --system --unit=rollbox-test.target --log-target=console
}

units() {
  mkdir -p "$folder/units"
  printf '[Unit]\nDefaultDependencies=no\nRequires=dbus.service\nAfter=dbus.service\n' > "$folder/units/rollbox-test.target"
  printf '[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=%s\n' "$folder/bus" > "$folder/units/dbus.socket"
  printf '[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\nAfter=dbus.socket\n[Service]\nExecStart=%s\n' \
    '/usr/bin/dbus-daemon --config-file=/usr/share/dbus-1/system.conf --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only' \
    > "$folder/units/dbus.service"
  # What units are wanted by, and what they are before.
  for one in multi-user basic sysinit shutdown; do
    printf '[Unit]\nDefaultDependencies=no\n' > "$folder/units/$one.target"
  done
}

if [ "${ROLLBOX_INSIDE:-}" = yes ]; then inside; fi
units
hierarchies | while read -r where _; do mkdir -p "$where/$name"; done
ROLLBOX_INSIDE=yes sh -c '
  name=$1; shift
  for where in $1; do echo $$ > "$where/$name/cgroup.procs"; done; shift
  exec unshare --pid --mount --cgroup --uts --fork --kill-child=KILL --mount-proc "$@"
' sh "$name" "$(hierarchies | cut -d" " -f1)" sh "$0" "$folder" "$kept" > "$folder/log" 2>&1 &
running=$!
cat > /dev/null
kill -KILL "$running" 2> /dev/null || true
wait "$running" 2> /dev/null || true
hierarchies | while read -r where _; do
  for _ in $(seq 50); do
    find "$where/$name" -depth -type d -exec rmdir {} \; 2> /dev/null || true
    [ -d "$where/$name" ] || break
    sleep 0.1
  done
done
