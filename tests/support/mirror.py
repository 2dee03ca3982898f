"""The real mirror as a program of this machine, with a registry that it fills."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controlplane.registry import MirrorClient
from tests.support.authority import Authority
from tests.support.stack import free_port

ROOT: Final = Path(__file__).parent.parent.parent
SERVER: Final = "mirror.rollbox.rollbox"
CLIENT: Final = "control-plane.rollbox.rollbox"
UP_WITHIN_S: Final = 30.0


def why_no_mirror() -> str | None:
    """Why it cannot be built here, or None."""
    return None if shutil.which("go") else "go is not on PATH"


def build(folder: Path) -> Path:
    """Builds the mirror from these sources into a folder; its program. Cost: seconds, a minute on a fresh machine."""
    subprocess.run([str(ROOT / "setup/go.sh"), "rollbox-mirror", str(folder)], check=True)
    return folder / "rollbox-mirror"


@dataclass(frozen=True)
class Mirror:
    """A mirror that runs."""

    address: str
    metrics: str
    client: MirrorClient
    pid: int
    commits: str = ""


@dataclass(frozen=True)
class Program:
    """How mirrors are started.

    Attributes:
        binary: the program.
        folder: for certificates and the account.
        plain: registries that may be asked by http, and at loopback addresses.
        stall_ms: after which silence a registry is given up.
        commits_certificate: of what signs tokens of commits; None: it takes none.
    """

    binary: Path
    folder: Path
    plain: Sequence[str] = ()
    stall_ms: int = 30_000
    commits_certificate: Path | None = None

    @asynccontextmanager
    async def running(self, registry: str, account: str = "user:password") -> AsyncIterator[Mirror]:
        """A mirror that fills this registry, and a client that it knows, while the block runs."""
        address, metrics, commits = (f"127.0.0.1:{free_port('127.0.0.1')}" for _ in range(3))
        authority = Authority()
        server, client = (
            authority.write(self.folder / "server", SERVER),
            authority.write(self.folder / "client", CLIENT),
        )
        (self.folder / "account").write_text(account)
        taken = {}
        if self.commits_certificate is not None:
            taken = {"COMMITS": commits, "COMMITS_CERTIFICATE": str(self.commits_certificate)}
        with self._process(registry, address, metrics, server, taken) as process:
            await answering(metrics, process)
            if taken:
                await answering(commits, process)
            async with MirrorClient.open(address, client, SERVER) as calls:
                yield Mirror(address, metrics, calls, process.pid, commits)

    @contextmanager
    def _process(
        self, registry: str, address: str, metrics: str, tls: Path, more: Mapping[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        settings = {
            "LISTEN": address,
            "METRICS": metrics,
            "TLS_FOLDER": str(tls),
            "CLIENT": CLIENT,
            "REGISTRY": registry,
            "REGISTRY_ACCOUNT_FILE": str(self.folder / "account"),
            "PLAIN_HTTP_REGISTRIES": ",".join(self.plain),
            "STALL_MS": str(self.stall_ms),
            **more,
        }
        environment = {**os.environ, **{f"ROLLBOX_MIRROR_{name}": value for name, value in settings.items()}}
        with subprocess.Popen([self.binary], env=environment) as process:
            try:
                yield process
            finally:
                process.terminate()


async def answering(address: str, process: subprocess.Popen[bytes]) -> None:
    """Waits until a program takes connections.

    Raises:
        RuntimeError: it has ended.
    """
    host, _, port = address.partition(":")
    async with asyncio.timeout(UP_WITHIN_S):
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"the program ended with {process.returncode}")
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            return
