#!/usr/bin/env bash
# Builds a program of the Go module as a static binary into a folder: go.sh rollbox-node FOLDER
set -euo pipefail
folder=$(realpath "$2")
cd "$(dirname "$0")/../node-go"
command -v go >/dev/null || { echo "go is not on PATH: $1 is written in Go" >&2; exit 1; }
# Without the paths and the commit of this checkout, so that equal sources give equal bytes.
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$folder/" "./cmd/$1"
