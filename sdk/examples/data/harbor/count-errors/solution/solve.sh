#!/bin/bash
set -eu
awk '$2 == "ERROR"' /app/server.log | wc -l > /app/errors.txt
