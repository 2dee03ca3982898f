"""What the scenarios of one benchmark stand on: a client, what it creates, and the label by which all of it goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rollbox._problem import SandboxError
from rollbox.bench.sample import Unfinished
from rollbox.recording.current import RUN_LABEL

if TYPE_CHECKING:
    from rollbox.bench.kubectl import Kubectl
    from rollbox.client import Client
    from rollbox.options import ResourceOptions
    from rollbox.sandbox import Sandbox

# Should this process be killed, its leases end what it has made; should these fail too, the lifetime does.
_LEASE_S, _TTL_S = 60.0, 1800.0
_CLEARED_WITHIN_S = 120.0
_CLEARS = 5
_REFILLED_WITHIN_S = 60.0
_LOOK_S = 0.5


class Told(Protocol):
    """Whom a benchmark tells how far it is."""

    def begin(self, what: str, total: int) -> None:
        """So many calls begin."""
        ...

    def step(self) -> None:
        """One of them is over."""
        ...

    def say(self, text: str) -> None:
        """Something happened."""
        ...


@dataclass
class Ground:
    """The ground of one benchmark.

    Attributes:
        client: of the installation.
        image: of all sandboxes.
        resources: of all sandboxes.
        run: the value of the label `rollbox.run` that all of them have.
        seconds: how long the calls of a scenario may take.
        kubectl: for the baseline; None: there is none.
        told: whom to tell how far it is.
        warm: how many ready sandboxes pools had at the beginning.
    """

    client: Client
    image: str
    resources: ResourceOptions
    run: str
    seconds: float
    told: Told
    kubectl: Kubectl | None = None
    warm: int = 0

    async def create(self) -> Sandbox:
        """Create one sandbox of the run."""
        life = {"ttl": _TTL_S, "lease": _LEASE_S, "start_timeout": max(1.0, self.seconds)}
        labels = {RUN_LABEL: self.run}
        return await self.client.create(self.image, **self.resources, labels=labels, **life)  # type: ignore[arg-type]

    def bounded(
        self, call: Callable[[int], Awaitable[object]], *, times: int = 1, later_s: float = 0.0
    ) -> Callable[[int], Awaitable[object]]:
        """Return the call such that its error is its answer, and such that it ends with the time of its scenario.

        Args:
            call: gets its number.
            times: so many times the time of the scenario, which begins now.
            later_s: when the last of an open loop begins: it has all of that time, too.
        """
        until = asyncio.get_running_loop().time() + later_s + times * self.seconds

        async def guarded(number: int) -> object:
            try:
                async with asyncio.timeout_at(until):
                    return await call(number)
            except SandboxError as error:
                return error
            except TimeoutError:
                return Unfinished()
            finally:
                self.told.step()

        return guarded

    @contextlib.asynccontextmanager
    async def sandboxes(self, count: int) -> AsyncIterator[list[Sandbox]]:
        """So many sandboxes for the block."""
        self.told.begin("sandboxes come up", count)
        try:
            made = await asyncio.gather(*(self._stepped() for _ in range(count)), return_exceptions=True)
            for one in made:
                if isinstance(one, BaseException):
                    raise one
            yield [one for one in made if not isinstance(one, BaseException)]
        finally:
            await self.clear()

    async def _stepped(self) -> Sandbox:
        made = await self.create()
        self.told.step()
        return made

    async def clear(self) -> int:
        """Delete all sandboxes of the run; returns how many there are still. Never raises a SandboxError."""
        labels, left = {RUN_LABEL: self.run}, 0
        for _ in range(_CLEARS):
            try:
                await self.client.delete(labels=labels, wait=True, wait_timeout=_CLEARED_WITHIN_S)
                # A create that was cancelled may have come after the delete.
                left = len(await self.client.list(labels))
            except SandboxError as error:
                self.told.say(f"the sandboxes of {self.run} could not be deleted: {error.code}: {error.detail}")
                left = max(left, 1)
            if not left:
                return 0
            await asyncio.sleep(_LOOK_S)
        return left

    async def refilled(self) -> None:
        """Wait until pools have as many ready sandboxes as at the beginning, a minute at most."""
        with contextlib.suppress(TimeoutError, SandboxError):
            async with asyncio.timeout(_REFILLED_WITHIN_S if self.warm else 0):
                while (await self.client.preflight(self.image, **self.resources)).warm < self.warm:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_LOOK_S)
