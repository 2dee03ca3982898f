"""What a sidecar does when a shell is to abandon a command, for real processes of this machine."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def abandon(shell: int, number: int, command_id: str, spared: set[int], *, on_terminal: bool) -> None:
    """Kill what a shell's command has started until none of it is left.

    One on a terminal is stopped meanwhile, and continued with the signal; any other has the signal before each kill.
    """
    if on_terminal:
        _send(shell, signal.SIGSTOP)
    else:
        _send(shell, number)
        _send(shell, signal.SIGCONT)
    while members := _members(shell, command_id, spared):
        if not on_terminal:
            _send(shell, number)
        for pid in sorted(members):
            _send(pid, signal.SIGKILL)
    if on_terminal:
        _send(shell, number)
        _send(shell, signal.SIGCONT)


def _members(shell: int, command_id: str, spared: set[int]) -> set[int]:
    parents: dict[int, int] = {}
    ids: dict[int, str | None] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may be gone by now, or somebody else's.
        with suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                ids[int(folder.name)] = _command_id(folder)
                parents[int(folder.name)] = int(parent)
    others = {pid: parent for pid, parent in parents.items() if pid != shell and pid not in spared}
    found = {pid for pid, parent in others.items() if ids[pid] == command_id or (parent == shell and ids[pid] is None)}
    while more := {pid for pid, parent in others.items() if parent in found} - found:
        found |= more
    return found


def _command_id(folder: Path) -> str | None:
    prefix = b"ROLLBOX_COMMAND_ID="
    variables = (folder / "environ").read_bytes().split(b"\0")
    return next((one.removeprefix(prefix).decode() for one in variables if one.startswith(prefix)), None)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
