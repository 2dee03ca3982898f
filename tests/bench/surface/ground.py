"""Where the product stands, as far as a measurement has to know: its own way to copy files, and where memory shows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from tests.bench.memory import resident_mib, sidecar_pids
from tests.support.containers import engine, engine_command
from tests.support.images import ON_ENGINE
from tests.support.stack import Product, Stack


class Ground(Protocol):
    """An engine, or a cluster.

    Attributes:
        product: what is measured.
        image: of the sandboxes.
        copying: what copies files there by itself.
    """

    product: Product
    image: str
    copying: str

    async def copy_in(self, local: Path, sandbox_id: str, path: str) -> None:
        """Copy a file into a sandbox without rollbox."""
        ...

    async def copy_out(self, sandbox_id: str, path: str, local: Path) -> None:
        """Copy one out of it."""
        ...

    async def address(self, sandbox_id: str) -> str | None:
        """Where this machine reaches servers in a sandbox without rollbox; None: nowhere."""
        ...

    async def watched(self, sandbox_id: str) -> dict[str, int]:
        """The processes whose memory must stay flat: name -> process id on this machine."""
        ...

    def inside(self, sandbox_id: str) -> AbstractAsyncContextManager[dict[str, tuple[float, float]]]:
        """The same of parts that are no processes here: MiB before the block and at most in it, once it has ended."""
        ...


class Engine:
    """The product on the engine of this machine."""

    image = ON_ENGINE
    copying = f"{engine_command()} cp"

    def __init__(self, stack: Stack) -> None:
        self.product: Product = stack
        self._stack = stack

    async def copy_in(self, local: Path, sandbox_id: str, path: str) -> None:
        """See ``Ground.copy_in``."""
        await engine("cp", str(local), f"rollbox-{sandbox_id}-target:{path}")

    async def copy_out(self, sandbox_id: str, path: str, local: Path) -> None:
        """See ``Ground.copy_out``."""
        await engine("cp", f"rollbox-{sandbox_id}-target:{path}", str(local))

    async def address(self, sandbox_id: str) -> str | None:
        """See ``Ground.address``: its sandboxes have no network."""
        return None

    async def watched(self, sandbox_id: str) -> dict[str, int]:
        """See ``Ground.watched``."""
        sidecar, *_ = await sidecar_pids(sandbox_id)
        return {"gateway": self._stack.pids()["rollbox-gateway"], "sidecar": sidecar, "client": os.getpid()}

    @contextlib.asynccontextmanager
    async def inside(self, sandbox_id: str) -> AsyncIterator[dict[str, tuple[float, float]]]:
        """See ``Ground.inside``: all are processes here."""
        yield {}


def memory_mib(watched: dict[str, int]) -> dict[str, float]:
    """VmRSS of each."""
    return {name: resident_mib(pid) for name, pid in watched.items()}
