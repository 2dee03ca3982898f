"""An upgrade from another checkout's control plane to this one's and back, both versions on one Redis for a while.

    python -m tests.upgrade CHECKOUT [GATEWAY]

Clients create (warm, cold, with settings, keys and groups), run commands and delete through one address all the time,
as through a Service. GATEWAY is the program of that version's gateway: then each version's gateway has the other one's
control plane for a while, too; without it, all gateways are this one's.
Control planes, gateways, Redis and SDK are real; the cluster and all sidecars are played. It fails when a sandbox is
lost, given twice or not answered for by one of the versions, when a client gets an error, or when use is counted wrong.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rollbox import Client, Sandbox, SandboxError, SandboxGroup
from tests.bench.lifecycle.stage import API_KEY, IMAGE, Stage, stage
from tests.chaos.service import Service
from tests.support.eventually import eventually

COLD = "localhost/bench/cold:1"
LANES = 4
POOL = 20
# How long each mixture of versions serves.
EACH_S = 15.0
LABELS = {"upgrade": "kept"}


@dataclass
class Replica:
    """A control plane with its gateway."""

    url: str
    plane: int
    gateway: int


@dataclass
class Upgrade:
    """What serves now, and what clients have met."""

    ground: Stage
    service: Service
    checkout: Path
    gateway: str
    failures: list[str] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)

    async def add(self, name: str, *, before: bool, crossed: bool = False) -> Replica:
        """Starts a replica of the version before or of this one behind the Service; crossed: with the other gateway."""
        self.ground.checkout = self.checkout if before else None
        self.ground.gateway = self.gateway if before != crossed else ""
        await self.ground.add_plane()
        made = Replica(self.ground.urls[-1], self.ground.planes[-1], self.ground.gateways[-1])
        self.service.backends[name] = urlsplit(made.url).port or 0
        return made

    async def end(self, name: str, replica: Replica) -> None:
        """Ends a replica as Kubernetes does: no new connections, then SIGTERM to both."""
        del self.service.backends[name]
        for pid in (replica.gateway, replica.plane):
            os.kill(pid, signal.SIGTERM)
            await eventually(partial(_gone, pid))

    async def lane(self, number: int, client: Client) -> None:
        """One client: creates of every kind, one after the other, until it is cancelled."""
        for turn in range(1_000_000):
            kind = ("warm", "cold", "settings", "key", "group")[turn % 5]
            try:
                await self._one(kind, client, f"{number}-{turn}")
            except (SandboxError, AssertionError) as error:
                self.failures.append(f"{kind}: {error!r}")
            self.served[kind] += 1

    async def _one(self, kind: str, client: Client, key: str) -> None:
        if kind == "group":
            async with await SandboxGroup.create(IMAGE, n=3, client=client, env={"G": key}) as group:
                self.ids.update(one.id for one in group)
            return
        image, env = (COLD if kind == "cold" else IMAGE), ({"A": key} if kind in ("settings", "key") else None)
        options = {"idempotency_key": key} if kind == "key" else {}
        async with await client.create(image, env=env, **options) as made:  # type: ignore[arg-type]
            self.ids[made.id] += 1
            assert (await made.exec("true")).exit_code == 0
            if kind == "key":
                again = await client.create(image, env=env, idempotency_key=key)
                assert again.id == made.id


async def kept(client: Client) -> list[Sandbox]:
    """Sandboxes that have to outlive all of it, of every kind."""
    made = [await client.create(IMAGE, labels=LABELS) for _ in range(4)]
    made += [
        await client.create(COLD, labels=LABELS, env={"KEPT": str(n)}, idempotency_key=f"kept-{n}") for n in range(4)
    ]
    return made


async def check(sandboxes: list[Sandbox], *urls: str) -> None:
    """Every version answers for every sandbox: its record, its key, an extension, a command, the list."""
    for url in urls:
        async with Client(url, API_KEY) as client:
            listed = {one.id for one in await client.list(labels=LABELS)}
            assert listed == {one.id for one in sandboxes}, f"{url} lists {listed}"
            for n, one in enumerate(sandboxes):
                assert (await client.get(one.id)).state == "running"
                connected = await client.connect(one.id)
                assert (await connected.exec("true")).exit_code == 0
                await connected.extend(3600 + n)
                if n >= 4:
                    key, env = f"kept-{n - 4}", {"KEPT": str(n - 4)}
                    again = await client.create(COLD, labels=LABELS, env=env, idempotency_key=key)
                    assert again.id == one.id, f"{url} has another sandbox for {key}"


@asynccontextmanager
async def load(upgrade: Upgrade, client: Client) -> AsyncIterator[None]:
    """Clients at work while the block runs."""
    lanes = [asyncio.create_task(upgrade.lane(number, client)) for number in range(LANES)]
    try:
        yield
    finally:
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)


async def run(checkout: Path, gateway: str) -> int:
    """Before, both, this one, both, before; the exit status."""
    async with stage(0) as ground, Service(random.Random(1)).serving() as service:
        upgrade = Upgrade(ground, service, checkout, gateway)
        old = await upgrade.add("old", before=True)
        async with Client(f"http://127.0.0.1:{service.port}", API_KEY) as client:
            await ground.fill(client, "warm", POOL)
            sandboxes = await kept(client)
            async with load(upgrade, client):
                await asyncio.sleep(EACH_S)
                new = await upgrade.add("new", before=False)
                await check(sandboxes, new.url, old.url, new.url)
                await asyncio.sleep(EACH_S)
                for before in (False, True) if gateway else ():
                    crossed = await upgrade.add("crossed", before=before, crossed=True)
                    await check(sandboxes, crossed.url, new.url, old.url)
                    await asyncio.sleep(EACH_S)
                    await upgrade.end("crossed", crossed)
                await upgrade.end("old", old)
                await check(sandboxes, new.url)
                await asyncio.sleep(EACH_S)
                older = await upgrade.add("older", before=True)
                await check(sandboxes, older.url, new.url)
                await asyncio.sleep(EACH_S)
                await upgrade.end("new", new)
                await check(sandboxes, older.url)
                await asyncio.sleep(EACH_S)
            await client.delete(labels=LABELS, wait=True)
            left = [one.id for one in await client.list()]
            used = (await client.quota()).used["sandboxes"]
        log = (ground.folder / "log").read_text()
    twice = [one for one, times in upgrade.ids.items() if times > 1]
    miscounts = [line for line in log.splitlines() if "counted wrong" in line]
    print(f"served {dict(upgrade.served)}, {len(upgrade.ids)} sandboxes; {len(sandboxes)} were kept through all of it")
    bad = {"failures": upgrade.failures, "given twice": twice, "left": left, "miscounts": miscounts}
    for what, found in bad.items():
        print(f"{what}: {len(found)}", *found[:10], sep="\n  ")
    print(f"in use afterwards: {used}")
    return 1 if any(bad.values()) or used else 0


def _gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(run(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "")))
