"""Asking what there is: the cluster itself, and the product through its own API."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rollbox import Client, SandboxError, SandboxRecord
from tests.chaos.invariants import ApiRecord, Seen

AT_ONCE = 16
COUNTED = ("sandboxes", "cpu_millicores", "memory_bytes", "gpu", "starting")
UNREADY = frozenset({"requested", "queued", "starting"})
OVER = frozenset({"ending", "ended"})


class Place(Protocol):
    """Where a soak takes place."""

    @property
    def owners(self) -> Sequence[str]:
        """Whose sandboxes the clients make."""
        ...

    def client(self, owner: str) -> Client:
        """Make a client of the judge's; use it as a context manager."""
        ...

    async def on_cluster(self) -> Mapping[str, str]:
        """Whose each sandbox is that the cluster holds, by the text that it carries; a pool's is `pool:NAME`'s."""
        ...

    async def warm(self) -> int:
        """How many sandboxes the pools say that they keep."""
        ...


async def seen(ground: Place, answered: Iterable[str] = ()) -> Seen:
    """Look at everything.

    Args:
        ground: the product, whole and at rest.
        answered: ids whose records are wanted, too, of which the owner is not known.
    """
    cluster, records = await ground.on_cluster(), dict[str, ApiRecord | None]()
    live, used, counted, unknown = dict[str, str](), {}, {}, set(answered)
    for owner in ground.owners:
        async with ground.client(owner) as client:
            listed = await client.list(all=bool(unknown))
            records |= {one.id: told(one) for one in listed}
            unknown -= records.keys()
            live |= {one.id: owner for one in listed if one.state not in OVER}
            used[owner] = {name: int(value) for name, value in (await client.quota()).used.items()}
            counted[owner] = count(listed)
    for owner in ground.owners:
        async with ground.client(owner) as client:
            records |= await _one_by_one(client, sorted(unknown - records.keys()))
    warm = await ground.warm()
    missing = {name: None for name in unknown if name not in records}
    return Seen(cluster, live, warm, used, counted, {**missing, **records})


def told(record: SandboxRecord) -> ApiRecord:
    """A record, as the judge needs it."""
    end = record.end
    return ApiRecord(record.owner, end is None, end.cause if end else "", end.by if end else "")


def count(records: Iterable[SandboxRecord]) -> dict[str, int]:
    """What live sandboxes use, added up."""
    sums: Counter[str] = Counter()
    for one in records:
        if one.state not in OVER:
            part: dict[str, Any] = {"sandboxes": 1, "gpu": one.gpu, "starting": int(one.state in UNREADY)}
            sums.update({**part, "cpu_millicores": one.cpu_millicores.request})
            sums.update({"memory_bytes": one.memory_bytes.request})
    return {name: sums[name] for name in COUNTED}


async def _one_by_one(client: Client, names: Sequence[str]) -> dict[str, ApiRecord | None]:
    found: dict[str, ApiRecord | None] = {}
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
