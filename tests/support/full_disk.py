"""The image disk of the test cluster's node, full for a while, without filling this machine's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import STATE
from tests.support.bare_node import ran

# What arrives of an image is written here first: a file system of one page takes not even its name.
ARRIVING = STATE / "containerd/io.containerd.content.v1.content/ingest"
SIZE = 8 << 20


@dataclass(frozen=True)
class FullDisk:
    """A small file system for a node agent to look at (`nodeAgent.containerd.root`)."""

    folder: Path

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        """It is full while the block runs, and what containerd pulls finds no room."""
        filler = self.folder / "filler"
        await ran("mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(ARRIVING))
        try:
            filler.write_bytes(bytes(SIZE - 4096))
            yield
        finally:
            filler.unlink(missing_ok=True)
            await ran("umount", "--lazy", str(ARRIVING))


@asynccontextmanager
async def full_disk(folder: Path) -> AsyncIterator[FullDisk]:
    """A disk with room while the block runs: it has to be there before the agent is."""
    await ran("mkdir", str(folder))
    await ran("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))
    try:
        yield FullDisk(folder)
    finally:
        await ran("umount", "--lazy", str(folder))
