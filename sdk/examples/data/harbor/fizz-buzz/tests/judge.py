"""Judges what is in /app, from outside of it: what the solver wrote is data here, or runs in a process of its own."""

import subprocess
import sys
from pathlib import Path


def read(name: str) -> str:
    """A file below /app."""
    return Path("/app", name).read_text(encoding="utf-8")


def run(code: str) -> str:
    """What code prints that may import what is in /app: in a process of its own and as nobody, so it writes nothing."""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd="/app", user=65534, timeout=20, capture_output=True, text=True, check=False
    )
    return ran.stdout.strip()


def passes() -> bool:
    """The task."""
    words = ["Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n) for n in range(1, 16)]
    return run(read("fizz.py")) == "\n".join(words)


sys.exit(not passes())
