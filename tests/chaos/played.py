"""Asking the played cluster, and the control planes over it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbox import Client


async def kept(url: str, api_key: str) -> int:
    """How many sandboxes all pools keep, as one control plane says."""
    async with Client(url, api_key) as client:
        return sum(pool.ready + pool.starting for pool in await client.pools())


async def on_cluster(socket: Path) -> dict[str, str]:
    """Whose each sandbox is that the played cluster holds, by the text that it carries."""
    held: Sequence[tuple[str, str, Mapping[str, str], str, str]] = await of_cluster(socket, do="list")
    return {name: owner_of(facts.get("claim") or record) for name, record, facts, *_ in held}


def owner_of(record: str) -> str:
    """Whose a sandbox is by the text that the cluster carries beside it."""
    return str(json.loads(record)["owner"])


async def of_cluster(socket: Path, **wish: str) -> Any:
    """What the played cluster answers."""
    answers, wishes = await asyncio.open_unix_connection(str(socket), limit=2**26)
    try:
        wishes.write(json.dumps({"call": 0, **wish}).encode() + b"\n")
        while "value" not in (said := json.loads(await answers.readline())):
            pass  # a death, which is told to everybody
        return said["value"]
    finally:
        wishes.close()
