"""`rollbox-egress` as a process, beside a control plane of this process."""

from __future__ import annotations

import asyncio
import json
import subprocess
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.installed import ROOT

BUILD = ("setup/cargo.sh", "build", "--locked", "--quiet", "--package", "egress", "--bin", "rollbox-egress")
# Of the feed; what it is written into has it too.
KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


def built() -> Path:
    """The program; the tests of the Rust workspace have built it already."""
    manifest = ("--manifest-path", "gateway-rs/Cargo.toml", "--message-format", "json")
    done = subprocess.run([*BUILD, *manifest], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    (found,) = {json.loads(line).get("executable") for line in done.stdout.splitlines()} - {None}
    return Path(found)


def admin(folder: Path, name: str) -> Path:
    """The socket of a replica's probes and metrics."""
    return folder / f"{name}.sock"


@asynccontextmanager
async def egress_process(program: Path, folder: Path, name: str, feed: Path) -> AsyncIterator[Process]:
    """A replica that follows the feed at a socket; ends as it is told to at the end of the block.

    Args:
        program: of `built`.
        folder: for its key and its socket.
        name: of the replica.
        feed: the socket.
    """
    key = folder / "feed.key"
    key.write_text(f"{KEY}\n")
    settings = {
        "FEED_URL": f"unix:{feed}",
        "FEED_KEY_FILE": str(key),
        "ID": name,
        "LISTEN": str(admin(folder, name)),
        "DRAIN_MS": "100",
    }
    environ = {f"ROLLBOX_EGRESS_{key}": value for key, value in settings.items()}
    process = await asyncio.create_subprocess_exec(program, env=environ, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        assert await process.wait() == 0
