"""What harnesses do to a process before it runs a model's program: limits, and nothing left to break out with."""

from __future__ import annotations

import builtins
import faulthandler
import importlib
import os
import resource
import sys
from typing import Any, Final

LIMITS: Final = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK)
OS: Final = """
kill killpg system putenv fork forkpty setuid chroot chdir fchdir getcwd
remove removedirs rmdir unlink rename renames replace truncate
chmod fchmod chown fchown lchown
"""
TAKEN: Final = {
    "builtins": ("exit", "quit"),
    "os": tuple(OS.split()),
    "shutil": ("rmtree", "move", "chown"),
    "subprocess": ("Popen",),
}
MODULES: Final = ("ipdb", "joblib", "resource", "psutil", "tkinter")


def disarm(most_bytes: int) -> dict[str, dict[str, Any]]:
    """Limits this process and takes functions away; returns these, to be given back before it cleans up.

    Args:
        most_bytes: of memory, of each kind of limit; 0: no limit.
    """
    if most_bytes:
        for limit in LIMITS:
            resource.setrlimit(limit, (most_bytes, most_bytes))
    faulthandler.disable()
    os.environ["OMP_NUM_THREADS"] = "1"
    taken: dict[str, dict[str, Any]] = {}
    for name, functions in TAKEN.items():
        module = importlib.import_module(name)
        taken[name] = {one: getattr(module, one) for one in functions if hasattr(module, one)}
        for one in taken[name]:
            setattr(module, one, None)
    builtins.help = None  # type: ignore[assignment]
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    return taken


def rearm(taken: dict[str, dict[str, Any]]) -> None:
    """Gives back what was taken."""
    for name, functions in taken.items():
        for one, function in functions.items():
            setattr(sys.modules[name], one, function)
