"""The whole product on this machine for tests, benchmarks and the demo: `rollbox up` as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support import outside

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


def why_no_engine() -> str | None:
    """Why the engine path cannot run here, or None."""
    if os.geteuid() != 0:
        return "the engine path needs root"
    sockets = (Path("/var/run/docker.sock"), Path("/run/podman/podman.sock"))
    if not os.environ.get("DOCKER_HOST") and not any(s.exists() for s in sockets) and not shutil.which("podman"):
        return "there is no container engine (setup/engine.sh installs one)"
    return None


def free_port(address: str = "127.0.0.1") -> int:
    """A port of this machine that nobody has now, and that the kernel gives to no outgoing connection meanwhile."""
    for port in random.sample(range(15_000, 30_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise RuntimeError(f"no port of {address} is to be had")


class Product(Protocol):
    """The running product as a user has it, wherever it runs."""

    @property
    def url(self) -> str:
        """The one address."""
        ...

    @property
    def api_key(self) -> str:
        """A key for it."""
        ...

    def environment(self) -> dict[str, str]:
        """What lets a user's program find it."""
        ...

    async def signing_key(self) -> bytes:
        """The private key behind its tokens, PEM: what an attacker must never have."""
        ...

    async def controlplanes(self) -> list[str]:
        """An address of each replica of its control plane that can be reached by itself, else the one for all."""
        ...


@dataclass
class Stack:
    """A running `rollbox up`.

    Attributes:
        url: the one address of the product.
        api_key: its key.
        state_dir: the folder of its sockets and keys.
        process: the supervisor.
    """

    url: str
    api_key: str
    state_dir: Path
    process: asyncio.subprocess.Process

    def environment(self) -> dict[str, str]:
        """See ``Product.environment``: the folder that `rollbox up` wrote is enough."""
        return {"ROLLBOX_STATE_DIR": str(self.state_dir)}

    async def signing_key(self) -> bytes:
        """See ``Product.signing_key``."""
        return (self.state_dir / "signing.key").read_bytes()

    async def controlplanes(self) -> list[str]:
        """See ``Product.controlplanes``: there is one, and the gateway leads to it."""
        return [self.url]

    def pids(self) -> dict[str, int]:
        """Name -> process id of the supervisor's parts, by the names of their programs."""
        found = {"controlplane": self.process.pid}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self.process.pid:
                    found[(entry / "comm").read_text().strip()] = int(entry.name)
        return found


async def start(state_dir: Path, *options: str, port: int | None = None) -> Stack:
    """Start `rollbox up` and wait until it says that it is ready.

    Raises:
        RuntimeError: it ended first; the message carries its last words.
    """
    # A fixed seed for string hashes and the like is not needed; the environment is passed on as it is.
    command = [sys.executable, "-m", "rollbox", "up", "--json", "--listen", f"127.0.0.1:{port or free_port()}"]
    log = (state_dir / "up.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        *command,
        "--state-dir",
        str(state_dir),
        *options,
        env={**os.environ, **outside.ENVIRON},
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    log.close()
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        line = b""
    if not line.startswith(b"{"):
        await stop_process(process)
        raise RuntimeError(f"rollbox up did not start: {(state_dir / 'up.log').read_text()[-2000:]}")
    credentials = json.loads((state_dir / "client.json").read_text())
    return Stack(credentials["url"], credentials["api_key"], state_dir, process)


async def stop_process(process: asyncio.subprocess.Process) -> int:
    """Ctrl-C, then wait; the exit status."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    async with asyncio.timeout(STOP_TIMEOUT_S):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


@contextlib.asynccontextmanager
async def running(*options: str) -> AsyncIterator[Stack]:
    """A stack with a state folder of its own; stopped and checked for a clean exit at the end."""
    # Short on purpose: socket paths are limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    try:
        stack = await start(folder, *options)
        try:
            yield stack
        finally:
            status = await stop_process(stack.process)
        if status != 0:
            raise RuntimeError(f"rollbox up ended with {status}: {(folder / 'up.log').read_text()[-2000:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
