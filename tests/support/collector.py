"""The real collector as a program of this machine, beside a registry whose folder it sees."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.registry import CollectorClient
from tests.support.authority import Authority
from tests.support.mirror import CLIENT, ROOT, answering
from tests.support.stack import free_port

SERVER = "registry.rollbox.rollbox"


def build(folder: Path) -> Path:
    """Builds the collector from these sources into a folder; its program. Cost: as ``mirror.build``."""
    subprocess.run([str(ROOT / "setup/go.sh"), "rollbox-collector", str(folder)], check=True)
    return folder / "rollbox-collector"


@dataclass(frozen=True)
class Collecting:
    """A collector that runs."""

    client: CollectorClient
    process: subprocess.Popen[bytes]


@asynccontextmanager
async def collecting(
    binary: Path, folder: Path, storage: Path, *, capacity_bytes: int = 0, **pace_ms: int
) -> AsyncIterator[Collecting]:
    """A collector of the registry in ``storage``, and a client that it knows, while the block runs.

    Args:
        binary: the program.
        folder: for certificates.
        storage: the registry's folder.
        capacity_bytes: what the registry may have.
        pace_ms: `young`, `settle` and `idle`; the program's own where one is not given.
    """
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    authority = Authority()
    server, client = authority.write(folder / "collector", SERVER), authority.write(folder / "asks", CLIENT)
    settings = {
        "LISTEN": address,
        "TLS_FOLDER": str(server),
        "CLIENT": CLIENT,
        "FOLDER": str(storage),
        "CAPACITY_BYTES": str(capacity_bytes),
        **{f"{name.upper()}_MS": str(time_ms) for name, time_ms in pace_ms.items()},
    }
    with _process(binary, storage, settings) as process:
        await answering(address, process)
        async with CollectorClient.open(address, client, SERVER) as calls:
            yield Collecting(calls, process)


@contextmanager
def _process(binary: Path, storage: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    storage.mkdir(exist_ok=True)
    environment = {**os.environ, **{f"ROLLBOX_COLLECTOR_{name}": value for name, value in settings.items()}}
    with subprocess.Popen([binary], env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
