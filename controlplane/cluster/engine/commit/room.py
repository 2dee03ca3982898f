"""How much room there is on the engine's disks: commits leave some of it to the sandboxes, also several at once."""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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


class Rooms:
    """The room on the disks, divided among those that write at once."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()  # bytes by device; of what is written by now too
        self._writers = 0
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def taken(self, copies: Mapping[str, int], max_bytes: int) -> AsyncIterator[Room]:
        """Room for a layer of at most ``max_bytes``, which nobody else gets until the block ends.

        Where there is less, it waits for others to end, and then has what there is.

        Args:
            copies: how many copies of the layer come to be in each folder.
            max_bytes: the most that it may have.

        Raises:
            OSError: a folder cannot be looked at.
        """
        while (found := room(copies, self._taken)).layer_bytes < max_bytes and self._writers:
            self._freed.clear()
            await self._freed.wait()
        share = {
            device: max(0, min(found.layer_bytes, max_bytes)) * count for device, count in _devices(copies).items()
        }
        self._taken.update(share)
        self._writers += 1
        try:
            yield found
        finally:
            self._taken.subtract(share)
            self._writers -= 1
            self._freed.set()


def room(copies: Mapping[str, int], taken: Mapping[int, int]) -> Room:
    """The room for a layer where this many copies of it come to be in each folder.

    Args:
        copies: by folder.
        taken: bytes that others may still write, by device.

    Raises:
        OSError: a folder cannot be looked at.
    """
    folders: dict[int, str] = {}
    for folder in copies:
        folders.setdefault(_device(folder), folder)
    rooms = (_room(folders[device], count, taken.get(device, 0)) for device, count in _devices(copies).items())
    return min(rooms, key=lambda one: one.layer_bytes)


def _devices(copies: Mapping[str, int]) -> Mapping[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for folder, count in copies.items():
        counts[_device(folder)] += count
    return counts


def _device(folder: str) -> int:
    return Path(folder).stat().st_dev


def _room(folder: str, count: int, taken: int) -> Room:
    free = free_bytes(folder)
    others = f", {taken} are for images that are being made" if taken else ""
    why = (
        f"{folder} has {free} bytes free, of which {KEEP_FREE_BYTES} stay free{others}: remove images that are not "
        "needed (rollbox image remove; podman rmi, docker rmi) or give it more room"
    )
    return Room((free - KEEP_FREE_BYTES - taken) // count, why)


def free_bytes(folder: str) -> int:
    """What is free on a folder's file system for users other than root."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
