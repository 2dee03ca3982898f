#!/usr/bin/env bash
# Podman's Docker API takes a request for a CDI device (HostConfig.DeviceRequests, driver "cdi"), answers 201 without a
# warning, and makes the container without the device. Docker refuses a driver that it does not know.
# Needs podman and curl, as root; writes one specification to a folder of its own and touches no other container.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${service:-0}" 2>/dev/null || true; podman rm --force --ignore finding-cdi >/dev/null; podman rmi --force localhost/finding-empty:1 >/dev/null 2>&1; rm -rf "$folder"' EXIT
podman --version
tar --create --files-from /dev/null | podman import --quiet - localhost/finding-empty:1 >/dev/null
podman system service --time=0 "unix://$folder/api.sock" >"$folder/log" 2>&1 &
service=$!
api() { curl --silent --unix-socket "$folder/api.sock" --header 'Content-Type: application/json' "http://d/v1.41$1" "${@:2}"; }
until api /version >/dev/null 2>&1; do :; done

body='{"Image": "localhost/finding-empty:1", "Cmd": ["/none"],
  "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nobody.example/none=never"]}]}}'
echo "a device of a kind that no specification has is asked for:"
answer=$(api "/containers/create?name=finding-cdi" --data "$body" --write-out ' status %{http_code}')
echo "  $answer"
devices=$(podman inspect finding-cdi --format '{{.HostConfig.Devices}}')
echo "  devices of the container: $devices"
[[ $answer == *'"Warnings":[]'*'status 201' && $devices == "[]" ]]
