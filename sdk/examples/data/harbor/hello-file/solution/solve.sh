#!/bin/bash
set -eu
printf 'Hello, world!\n' > /app/hello.txt
