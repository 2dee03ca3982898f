"""The real node agent as a program of this machine, and certificates for it and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.installed import ROOT

SERVER: Final = "node.rollbox.rollbox"
CLIENT: Final = "control-plane.rollbox.rollbox"


def why_no_agent() -> str | None:
    """Why the agent cannot be built here, or None."""
    return None if shutil.which("go") else "go is not on PATH"


def build(folder: Path) -> Path:
    """Builds the agent from these sources into a folder; its program. Cost: seconds, a minute on a fresh machine."""
    subprocess.run([str(ROOT / "setup/go.sh"), "rollbox-node", str(folder)], check=True)
    return folder / "rollbox-node"


@dataclass(frozen=True)
class Agent:
    """An agent that runs."""

    address: str


@contextlib.asynccontextmanager
async def running(program: Path, settings: Mapping[str, str]) -> AsyncIterator[Agent]:
    """The agent with these settings (without ``ROLLBOX_NODE_``) while the block runs, on a port that is free."""
    environ = {
        "ROLLBOX_NODE_NAME": "node-1",
        "ROLLBOX_NODE_CLIENT": CLIENT,
        "ROLLBOX_NODE_LISTEN": "127.0.0.1:0",
        "ROLLBOX_NODE_NAMESPACE": "rollbox-sandboxes",
        "ROLLBOX_NODE_HANDLERS": "runsc",
        **{f"ROLLBOX_NODE_{name}": value for name, value in settings.items()},
    }
    process = await asyncio.create_subprocess_exec(program, "agent", env=environ, stderr=asyncio.subprocess.PIPE)
    try:
        yield Agent(await _address(process))
    finally:
        process.terminate()
        assert process.stderr is not None
        said = await process.stderr.read()
        assert await process.wait() == 0, said.decode()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where it says that it listens."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            said = json.loads(line)
            if said["msg"] == "node agent started":
                return str(said["address"])
    raise AssertionError("the agent has ended")
