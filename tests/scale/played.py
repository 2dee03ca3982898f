"""The program that plays sidecars, built from `gateway-rs/crates/gateway/examples/sidecars`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.support.installed import ROOT

WHAT = ("--manifest-path", "gateway-rs/Cargo.toml", "--package", "gateway", "--example", "sidecars")
BUILD = ("setup/cargo.sh", "build", "--locked", "--quiet", "--release", *WHAT, "--message-format", "json")


def sidecars_program() -> Path:
    """Its path; a file that ROLLBOX_SCALE_SIDECARS names, else what Cargo makes."""
    if given := os.environ.get("ROLLBOX_SCALE_SIDECARS"):
        return Path(given)
    done = subprocess.run(BUILD, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    (program,) = {found for line in done.stdout.splitlines() if (found := _program(line))}
    return Path(program)


def _program(line: str) -> str:
    message = json.loads(line)
    return message.get("executable") or "" if message.get("target", {}).get("name") == "sidecars" else ""
