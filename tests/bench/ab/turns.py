"""Several installations at once, each measured in turn: what a claim, a warm create, a group and a herd cost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rollbox import Client, SandboxGroup
from rollbox.bench import arrivals
from rollbox.bench.sample import percentile
from tests.bench.lifecycle.stage import IMAGE, Stage, stage

POOL = 200
LANES = 32
CLAIMS = 150
WARM, PER_SECOND = 60, 50.0
GROUP = 100
HERD = 100
COLD_IMAGE = "localhost/bench/cold:1"
LABELS = {"bench": "turn"}


@dataclass(frozen=True)
class Way:
    """One installation.

    Attributes:
        library: the parts that are the library's, comma-separated.
        checkout: of another commit; None: this one.
    """

    library: str = ""
    checkout: Path | None = None


@dataclass
class Place:
    """An installation that runs, and what was measured there: figure -> one value a round."""

    ground: Stage
    client: Client
    seen: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figure: str, value: float) -> None:
        self.seen.setdefault(figure, []).append(value)

    def cpu_s(self) -> float:
        """The processor time of the control plane, to the nanosecond (``/proc`` has it in hundredths of a second)."""
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self.ground.planes)

    async def clear(self) -> None:
        await self.client.delete(labels=LABELS, wait=True)
        await self.ground.filled(self.client, "warm", POOL)


@asynccontextmanager
async def places(ways: Mapping[str, Way]) -> AsyncIterator[dict[str, Place]]:
    """All of them, with a full pool each."""
    async with AsyncExitStack() as stack:
        made = {}
        for name, way in ways.items():
            ground = await stack.enter_async_context(stage(0))
            if way.checkout is None:
                ground.program, ground.env["ROLLBOX_BENCH_LIBRARY"] = "tests.bench.ab.plane", way.library
            else:
                ground.checkout = way.checkout
            await ground.add_plane()
            client = await stack.enter_async_context(ground.client())
            await ground.fill(client, "warm", POOL)
            made[name] = Place(ground, client)
        yield made


async def _claims(place: Place) -> None:
    left, sources = iter(range(CLAIMS)), []

    async def lane() -> None:
        for _ in left:
            sources.append((await place.client.create(IMAGE, labels=LABELS)).record.source)

    before_s, began = place.cpu_s(), time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(LANES)))
    took_s = time.perf_counter() - began
    await place.ground.filled(place.client, "warm", POOL)
    place.add("claims/s", CLAIMS / took_s)
    place.add("CPU ms a claim", (place.cpu_s() - before_s) * 1000 / CLAIMS)
    _all("warm", sources)


async def _warm(place: Place) -> None:
    async def create(_: int) -> object:
        return await place.client.create(IMAGE, labels=LABELS)

    before_s = place.cpu_s()
    met = [one.ms for one in await arrivals.open_loop(arrivals.poisson(WARM, PER_SECOND), create)]
    place.add("warm create p50 ms", percentile(met, 0.5))
    place.add("warm create p99 ms", percentile(met, 0.99))
    await place.ground.filled(place.client, "warm", POOL)
    place.add("CPU ms a warm create", (place.cpu_s() - before_s) * 1000 / WARM)


async def _group(place: Place) -> None:
    began = time.perf_counter()
    async with await SandboxGroup.create(IMAGE, n=GROUP, client=place.client) as group:
        place.add("group of 100 ms", (time.perf_counter() - began) * 1000)
        _all("warm", [member.record.source for member in group])
        await group.delete(wait=True)


async def _herd(place: Place) -> None:
    before_s, began = place.cpu_s(), time.perf_counter()
    made = await asyncio.gather(*(place.client.create(COLD_IMAGE, labels=LABELS) for _ in range(HERD)))
    place.add("herd creates/s", HERD / (time.perf_counter() - began))
    place.add("CPU ms a cold create", (place.cpu_s() - before_s) * 1000 / HERD)
    _all("cold", [one.record.source for one in made])


STEPS: Mapping[str, Callable[[Place], Awaitable[None]]] = {
    "claims": _claims,
    "warm": _warm,
    "group": _group,
    "herd": _herd,
}


async def rounds(
    ways: Mapping[str, Way], count: int, steps: Sequence[str] = tuple(STEPS)
) -> dict[str, dict[str, list[float]]]:
    """Way -> figure -> one value a round; the first round is not counted, since it warms caches."""
    async with places(ways) as made:
        for number in range(count + 1):
            # Every other round backwards, so that no way always follows the same one.
            turn = list(made.values())[:: -1 if number % 2 else 1]
            for step in steps:
                for place in turn:
                    await STEPS[step](place)
                    await place.clear()
            print(f"round {number} of {count}, load {os.getloadavg()[0]:.0f}", flush=True)
        return {name: {figure: values[1:] for figure, values in place.seen.items()} for name, place in made.items()}


def _all(wanted: str, sources: Sequence[str]) -> None:
    if set(sources) != {wanted}:
        raise RuntimeError(f"not all of {len(sources)} were {wanted}: the figure would be another one's")
