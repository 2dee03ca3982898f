#!/bin/bash
set -eu
sed -i 's: // 2 - 1: // 2:' /app/middle.py
