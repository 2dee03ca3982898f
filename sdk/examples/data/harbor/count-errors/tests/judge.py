"""Judges what is in /app, from outside of it: what the solver wrote is data here, or runs in a process of its own."""

import sys
from pathlib import Path


def read(name: str) -> str:
    """A file below /app."""
    return Path("/app", name).read_text(encoding="utf-8")


def passes() -> bool:
    """The task."""
    return read("errors.txt").strip() == "2"


sys.exit(not passes())
