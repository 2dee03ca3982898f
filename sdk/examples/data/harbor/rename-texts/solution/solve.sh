#!/bin/bash
set -eu
cd /app/notes; for one in *.text; do mv "$one" "${one%.text}.txt"; done
