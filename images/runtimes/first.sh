#!/bin/sh
# Prints the files that a usual start of this image and its first commands read, one a line, in that order. It runs in the
# image: shells, what most commands begin with, then Python with what most programs import, and Git where it is there.
set -eu

# A program, and the libraries that it is linked with.
program() {
  at=$(command -v "$1") || return 0
  readlink -f "$at"
  # A script or a static program has none.
  { ldd "$(readlink -f "$at")" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r one; do readlink -f "$one"; done
}

# What every process reads before its own files; links have no content.
for one in /etc/ld.so.cache /etc/passwd /etc/group /etc/nsswitch.conf; do
  [ ! -f "$one" ] || readlink -f "$one"
done
for one in sh bash env cat ls mkdir; do program "$one"; done
program python3
if command -v python3 >/dev/null; then
  python3 -c '
import argparse, collections, functools, importlib, json, math, os, pathlib, random, re, shutil, subprocess, sys, tempfile
import time, traceback, typing
for name in ("pytest", "_pytest.assertion.rewrite"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
for one in [*sys.modules.values()]:
    for path in (getattr(one, "__cached__", None), getattr(one, "__file__", None)):
        if path and os.path.isfile(path):
            print(os.path.realpath(path))
'
fi
for one in git grep sed find rg; do program "$one"; done
