#!/bin/bash
set -eu
chmod 755 /app/run.sh
