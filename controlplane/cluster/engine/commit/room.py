"""How much room there is on the engine's disks: commits leave some of it to the sandboxes."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# On each file system that a commit writes to; a guess.
KEEP_FREE_BYTES: Final = 2 << 30


@dataclass(frozen=True, slots=True)
class Room:
    """What a layer may have.

    Attributes:
        layer_bytes: the most; negative: less is free than has to stay.
        why: which folder has how much, and what can be done about it.
    """

    layer_bytes: int
    why: str


def room(copies: Mapping[str, int]) -> Room:
    """The room for a layer where this many copies of it come to be in each folder.

    Raises:
        OSError: a folder cannot be looked at.
    """
    counts: dict[int, int] = defaultdict(int)
    folders: dict[int, str] = {}
    for folder, count in copies.items():
        device = Path(folder).stat().st_dev
        counts[device] += count
        folders.setdefault(device, folder)
    rooms = (_room(folders[device], count) for device, count in counts.items())
    return min(rooms, key=lambda one: one.layer_bytes)


def _room(folder: str, count: int) -> Room:
    free = free_bytes(folder)
    why = (
        f"{folder} has {free} bytes free, of which {KEEP_FREE_BYTES} stay free: "
        "remove images that are not needed (podman rmi, docker rmi) or give it more room"
    )
    return Room((free - KEEP_FREE_BYTES) // count, why)


def free_bytes(folder: str) -> int:
    """What is free on a folder's file system for those who are not root."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
