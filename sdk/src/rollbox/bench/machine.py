"""What the machine is that measures."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def hardware() -> dict[str, str | int]:
    """Return processor, cores, memory and kernel of this machine."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_mib": memory_bytes >> 20,
        "kernel": platform.release(),
    }


def load() -> float:
    """Return how many programs of this machine wanted a processor in the last minute, on average."""
    return os.getloadavg()[0]


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()
