"""A control plane with sandboxes of a simulated cluster on a port, and `rollbox ui` in front of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.api.listeners import serving_http
from controlplane.clock import SystemClock
from controlplane.errors import Code
from controlplane.lifecycle import Options
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import EndCause, SandboxSpec, State
from controlplane.settings import Listen
from controlplane.store import RedisStore, Store
from tests.support.redis_server import redis_server
from tests.support.refilled import refilled
from tests.support.stack import free_port
from tests.support.world import KEY, OWNER, World, world

IMAGES = ("python:3.12", "registry.example/swe/django-4.2:eval", "node:22")
TOGETHER = 100
# How often each cause has ended a sandbox in the day before, where a picture is drawn.
CAUSES: dict[Code, int] = {
    "deleted": 60,
    "oom_killed": 9,
    "ttl_expired": 6,
    "capacity_unavailable": 3,
    "sandbox_lost": 2,
}


@dataclass
class Stage:
    """A running control plane.

    Attributes:
        url: where it serves, as a gateway would: the console's requests pass a gateway unchanged.
        stop: set to stop serving.
    """

    plane: World
    url: str
    stop: asyncio.Event

    async def add(self, count: int, **labels: str) -> list[str]:
        """Creates sandboxes, as a run would; their ids."""
        ids = list[str]()
        for first in range(0, count, TOGETHER):
            specs = [_spec(number, labels) for number in range(first, min(count, first + TOGETHER))]
            ids += [made.sandbox.id for made in await asyncio.gather(*(self.plane.create(OWNER, one) for one in specs))]
        return ids

    async def address(self, sandbox_id: str) -> str:
        """Of its sidecar."""
        return (await self.plane.service.get(OWNER, sandbox_id)).address or ""

    async def a_day_of_ends(self, sandbox_id: str) -> None:
        """Lets the control plane hear of ends of the last day, of sandboxes like this one; more of late."""
        one, now_ms = await self.plane.service.get(OWNER, sandbox_id), self.plane.deps.clock.now_ms()
        causes = [cause for cause, share in CAUSES.items() for _ in range(share)]
        for number in range(4_000):
            cause, at_ms = (
                causes[number * 7 % len(causes)],
                now_ms - round(86_000_000 * (number * 617 % 4_000 / 4_000) ** 2),
            )
            end = EndCause(cause, "d", at_ms, "x")
            ended = replace(one, id=f"sb-ended{number}", state=State.ENDED, end=end)
            self.plane.service._core.end_times.on(Transition.of(None, ended, here=False))


@asynccontextmanager
async def staged(folder: Path, *, redis: bool = False) -> AsyncIterator[Stage]:
    """A stage without sandboxes.

    Args:
        folder: for the store's socket.
        redis: keep records as an installation of many replicas does.
    """
    async with AsyncExitStack() as stack:
        clock, store = SystemClock(), None
        if redis:
            store = await _redis(stack, folder, clock)
        plane = await stack.enter_async_context(
            world(clock=clock, store=store, options=Options(starts_in_flight=TOGETHER))
        )
        stop, port = asyncio.Event(), free_port()

        async def serve() -> None:
            async with serving_http(plane.api.app, Listen.parse(f"127.0.0.1:{port}")):
                await stop.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            yield Stage(plane, f"http://127.0.0.1:{port}", stop)
            stop.set()


@dataclass
class Ui:
    """A running `rollbox ui`."""

    address: str
    process: asyncio.subprocess.Process

    @property
    def home(self) -> str:
        """The address of the first page."""
        return self.address.partition("login")[0]


@asynccontextmanager
async def ui(url: str) -> AsyncIterator[Ui]:
    """Runs `rollbox ui` for the stage at this address."""
    command = (sys.executable, "-m", "rollbox", "ui", "--print")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ROLLBOX_URL": url, "ROLLBOX_API_KEY": KEY},
    )
    assert process.stdout is not None
    try:
        yield Ui((await process.stdout.readline()).decode().strip(), process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


async def _redis(stack: AsyncExitStack, folder: Path, clock: SystemClock) -> Store:
    url = stack.enter_context(redis_server(folder))
    opened = RedisStore.open(url, installation="t", clock=clock, replica="r")
    store = await stack.enter_async_context(opened)
    await refilled(store)
    return store


def _spec(number: int, labels: dict[str, str]) -> SandboxSpec:
    usual = {
        "rollbox.run": f"r{number % 3}",
        "rollbox.group": f"group-{number // 8}",
        "task": f"django__django-{number}",
    }
    return SandboxSpec(image=IMAGES[number % len(IMAGES)], labels={**usual, **labels})
