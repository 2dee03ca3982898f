"""What a sandbox has seen of what programs may do, and what to do about it. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rollbox.egress_check import Found

SUID: Final = (
    'Put `allow-suid = "true"` under `[runsc_config]` of the settings of its runtime (docs/node-agent.md): '
    'it holds for sandboxes that start after that. Until then run what needs root with `user="root"`.'
)
NO_NEW_PRIVS: Final = (
    "The engine starts containers with no-new-privileges: take that out of its settings, or run what needs root with "
    '`user="root"`.'
)
UNKNOWN: Final = 'Run what needs root with `user="root"`.'
SCOPE: Final = (
    "`sysctl kernel.yama.ptrace_scope=0` on this machine lets debuggers attach to processes of their user; or start "
    "programs under the debugger (`gdb --args`, `strace -f`, `py-spy record --`)."
)
UPGRADE: Final = (
    "The sidecar sets it where gVisor takes it: see that its version is the control plane's. Until then start programs "
    "under the debugger (`gdb --args`, `strace -f`, `py-spy record --`)."
)


def told(text: str) -> Mapping[str, Any]:
    """Reads what the program has printed.

    Raises:
        ValueError: it is something else.
    """
    try:
        read: dict[str, Any] = json.loads(text)
        return {name: read[name] for name in ("setuid", "attach", "scope", "kernel", "no_new_privs")}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the sandbox answers {text[:160]!r}") from error


def judged(seen: Mapping[str, Any]) -> Iterator[Found]:
    """What follows from it.

    Args:
        seen: as ``told`` gives it.
    """
    gvisor = "gvisor" in str(seen["kernel"]).lower()
    if seen["setuid"] == "0":
        yield Found("setuid programs", True, "`sudo` and `su` change the user")
    elif str(seen["setuid"]).isdecimal():
        fix = NO_NEW_PRIVS if seen["no_new_privs"] else SUID if gvisor else UNKNOWN
        yield Found("setuid programs", False, "`sudo`, `su` and others start, and change no user", fix)
    else:
        yield Found("setuid programs", False, f"not tried: {seen['setuid']}", UNKNOWN)
    if not seen["attach"]:
        yield Found("debuggers", True, "they attach to running processes of their user")
        return
    scope = f"; kernel.yama.ptrace_scope is {seen['scope']}" if seen["scope"] else ""
    refused = f"they attach to no running process: {os.strerror(seen['attach'])}{scope}"
    yield Found("debuggers", False, refused, UPGRADE if gvisor else SCOPE)
