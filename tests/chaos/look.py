"""Asking what there is: the played cluster itself, and the product through its own API."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbox import Client, SandboxError, SandboxRecord
from tests.chaos.ground import OPERATOR, OWNERS, Ground, api_key
from tests.chaos.invariants import Seen, Told

AT_ONCE = 16
COUNTED = ("sandboxes", "cpu_millicores", "memory_bytes", "gpu", "starting")
UNREADY = frozenset({"requested", "queued", "starting"})
OVER = frozenset({"ending", "ended"})


async def seen(ground: Ground, answered: Iterable[str] = ()) -> Seen:
    """Look at everything.

    Args:
        ground: the product, whole and at rest.
        answered: ids whose records are wanted, too, of which the owner is not known.
    """
    cluster, records = await on_cluster(ground.folder / "stagehand.sock"), dict[str, Told | None]()
    live, used, counted, unknown = dict[str, str](), {}, {}, set(answered)
    for owner in OWNERS:
        async with ground.client(owner) as client:
            listed = await client.list(all=bool(unknown))
            records |= {one.id: told(one) for one in listed}
            unknown -= records.keys()
            live |= {one.id: owner for one in listed if one.state not in OVER}
            used[owner] = {name: int(value) for name, value in (await client.quota()).used.items()}
            counted[owner] = count(listed)
    for owner in OWNERS:
        async with ground.client(owner) as client:
            records |= await _one_by_one(client, sorted(unknown - records.keys()))
    warm = max([await _warm(port) for port in ground.api.backends.values()])
    missing = {name: None for name in unknown if name not in records}
    return Seen(cluster, live, warm, used, counted, {**missing, **records})


async def _warm(port: int) -> int:
    """What one control plane says that pools keep; here only the one that plans them knows: each has its own file."""
    async with Client(f"http://127.0.0.1:{port}", api_key(OPERATOR)) as client:
        return sum(pool.ready + pool.starting for pool in await client.pools())


async def on_cluster(socket: Path) -> dict[str, str]:
    """Whose each sandbox is that the played cluster holds, by the text that it carries."""
    answers, wishes = await asyncio.open_unix_connection(str(socket), limit=2**26)
    try:
        wishes.write(b'{"call": 0, "do": "list"}\n')
        held: Sequence[tuple[str, str, Mapping[str, str], str]] = json.loads(await answers.readline())["value"]
    finally:
        wishes.close()
    return {name: str(json.loads(facts.get("claim") or record)["owner"]) for name, record, facts, _ in held}


def told(record: SandboxRecord) -> Told:
    """A record, as the judge needs it."""
    end = record.end
    return Told(record.owner, end is None, end.cause if end else "", end.by if end else "")


def count(records: Iterable[SandboxRecord]) -> dict[str, int]:
    """What live sandboxes use, added up."""
    sums: Counter[str] = Counter()
    for one in records:
        if one.state not in OVER:
            part: dict[str, Any] = {"sandboxes": 1, "gpu": one.gpu, "starting": int(one.state in UNREADY)}
            sums.update({**part, "cpu_millicores": one.cpu_millicores.request})
            sums.update({"memory_bytes": one.memory_bytes.request})
    return {name: sums[name] for name in COUNTED}


async def _one_by_one(client: Client, names: Sequence[str]) -> dict[str, Told | None]:
    found: dict[str, Told | None] = {}
    free = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with free:
            try:
                found[name] = told(await client.get(name))
            except SandboxError as error:
                # Whoever does not own it is told the same as if there were none.
                if error.code not in ("sandbox_not_found", "permission_denied"):
                    raise

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
    return found
