"""Judges what is in /app, from outside of it: what the solver wrote is data here, or runs in a process of its own."""

import json
import sys
from pathlib import Path


def read(name: str) -> str:
    """A file below /app."""
    return Path("/app", name).read_text(encoding="utf-8")


def passes() -> bool:
    """The task."""
    return json.loads(read("total.json")) == {"Oslo": 8, "Rome": 4, "Lima": 1}


sys.exit(not passes())
