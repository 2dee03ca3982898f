#!/usr/bin/env bash
# Makes the environment of one client, as published, in build/bridges: environment.sh NAME, for requirements/NAME.txt
# beside this (Python), or the folder requirements/NAME (JavaScript).
# Each list is whole; of a client of which one module is run, it has what that module imports.
set -euo pipefail
cd "$(dirname "$0")"
folder=../../build/bridges/$1
rm -rf "$folder" "$folder.new"
if [ -d "requirements/$1" ]; then
  mkdir -p "$folder.new"
  cp "requirements/$1/"*.json "$folder.new"
  command -v npm > /dev/null || ../../setup/packages.sh nodejs npm
  (cd "$folder.new" && npm ci --silent --ignore-scripts --no-audit --no-fund)
else
  "${PYTHON:-python3}" -m venv "$folder.new"
  "$folder.new/bin/python" -m pip install --quiet --no-compile --no-deps --only-binary :all: --requirement "requirements/$1.txt"
fi
mv "$folder.new" "$folder"
