#!/usr/bin/env bash
# Makes the environment of one client, as published: environment.sh NAME, for requirements/NAME.txt beside this.
set -euo pipefail
cd "$(dirname "$0")"
folder=../../build/bridges/$1
rm -rf "$folder" "$folder.new"
"${PYTHON:-python3}" -m venv "$folder.new"
"$folder.new/bin/python" -m pip install --quiet --no-compile --only-binary :all: --requirement "requirements/$1.txt"
mv "$folder.new" "$folder"
