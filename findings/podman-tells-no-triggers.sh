#!/usr/bin/env bash
# What ONBUILD and SHELL have put into an image is in no answer of Podman's: neither `podman inspect` nor the Docker API
# (GET /images/ID/json, whose OnBuild is null) tells it, while its own builder follows both in a build FROM that image.
# Needs podman, curl and python3, as root; makes images of its own names, without a network, and removes them.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${service:-0}" 2>/dev/null || true; podman rmi --force localhost/finding-child:1 localhost/finding-triggers:1 >/dev/null 2>&1; rm -rf "$folder"' EXIT
podman --version
printf 'FROM scratch\nSHELL ["/none", "-c"]\nONBUILD LABEL by=trigger\n' >"$folder/Dockerfile"
podman build --quiet --format docker --tag localhost/finding-triggers:1 "$folder" >/dev/null
podman system service --time=0 "unix://$folder/api.sock" >"$folder/log" 2>&1 &
service=$!
api() { curl --silent --unix-socket "$folder/api.sock" "http://d/v1.41$1"; }
until api /version >/dev/null 2>&1; do :; done

told=$(api /images/localhost/finding-triggers:1/json | python3 -c 'import json, sys; c = json.load(sys.stdin)["Config"]; print(c["OnBuild"], c.get("Shell"))')
echo "the API tells of triggers and shell: $told"
inspected=$(podman inspect localhost/finding-triggers:1 --format '{{json .Config}}')
echo "podman inspect tells: $inspected"
printf 'FROM localhost/finding-triggers:1\n' >"$folder/Dockerfile"
podman build --quiet --format docker --tag localhost/finding-child:1 "$folder" >/dev/null
label=$(podman inspect localhost/finding-child:1 --format '{{.Config.Labels.by}}')
echo "an image built from it has the label of the trigger: by=$label"
[[ $told == "None None" && $inspected != *trigger* && $inspected != *none* && $label == trigger ]]
