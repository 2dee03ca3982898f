"""What dies when: blows at random moments, also while others are not repaired; what a blow has left meets the next."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from tests.chaos.events import Log
from tests.chaos.processes import Processes
from tests.chaos.there import says

# From one blow to the next; a repair takes as long.
LULL_S = (0.5, 3.0)
# In the logs of clients.
ANSWERS = [re.compile(rb'"%s\.answered".*"id"' % kind) for kind in (b"create", b"exec", b"delete")]

# What a blow hits, and the blow, which returns when all of it stands again.
Blow = tuple[Sequence[str], Callable[[], Awaitable[None]]]


class Storm(ABC):
    """Lets blows fall on a product, and puts up again what they hit.

    Attributes:
        blows: how often each has fallen.
        trouble: what went wrong that no blow explains.
    """

    def __init__(self, ground: Processes, seed: int, log: Log, lull_s: tuple[float, float] = LULL_S) -> None:
        self.blows: dict[str, int] = {}
        self.trouble: list[str] = []
        self._processes = ground
        self._seed = seed
        self._draw = random.Random(seed)
        self._log = log
        self._lull_s = lull_s
        self._made = 0
        self._down: set[str] = set()
        self._up_s: dict[str, float] = {}
        self._kinds: Mapping[str, Blow] = {"client": (("client",), self._client), **self.kinds()}

    @abstractmethod
    def kinds(self) -> Mapping[str, Blow]:
        """All blows by name, but that on clients."""

    @abstractmethod
    def account(self, number: int) -> tuple[str, str, str]:
        """The address, the owner and the API key of a client."""

    def now(self, gone_s: float, seconds: float) -> tuple[str, Blow] | None:
        """A blow that has its moment, when this is it."""
        del gone_s, seconds
        return None

    def over(self) -> bool:
        """Whether all blows that have their moment have fallen."""
        return True

    async def rage(self, seconds: float) -> None:
        """Let blows fall for so long, also while others are not repaired; no kind twice before every kind has fallen.

        On a slow machine it goes on until clients were answered calls of every kind, three times as long at most.
        """
        began_s, left = time.monotonic(), list[str]()
        async with asyncio.TaskGroup() as falling:
            while (gone_s := time.monotonic() - began_s) < seconds or not (self.over() and self._tried()):
                if gone_s > 3 * seconds:
                    self.trouble.append(f"within {gone_s:.0f} s no client was answered calls of every kind")
                    break
                await asyncio.sleep(self._draw.uniform(*self._lull_s))
                if (due := self.now(gone_s, seconds)) is not None:
                    self._begin(falling, due[0], *due[1])
                left = left or self._draw.sample([*self._kinds], len(self._kinds))
                if name := next(filter(self.may, left), ""):
                    left.remove(name)
                    self._begin(falling, name, *self._kinds[name])

    def may(self, name: str) -> bool:
        """Whether this blow may fall now: all that it hits stands."""
        return self._down.isdisjoint(self._kinds[name][0])

    async def calm(self, within_s: float) -> None:
        """Have all clients end what they do; one that does not is told, and killed."""
        clients = [name for name in self._processes.parts if name.startswith("client-")]
        for name in clients:
            with suppress(ProcessLookupError):
                self._processes.parts[name].terminate()
        until_s = time.monotonic() + within_s
        for name in clients:
            try:
                async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                    code = await self._processes.parts[name].wait()
                    if code:
                        self.trouble += [one for one in self._processes.fallen() if one.startswith(f"{name} ")]
            except TimeoutError:
                self.trouble.append(f"{name} did not end within {within_s:.0f} s")
            await self._processes.kill(name)
        self.trouble += self._processes.fallen()

    async def client_starts(self) -> None:
        """Start one more client."""
        number, self._made = self._made, self._made + 1
        name, (url, owner, api_key) = f"client-{number}", self.account(number)
        log = self._processes.folder / f"{name}.events"
        words = ("-m", "tests.chaos.client", url, owner, api_key, name, str(self._seed * 1000 + number), str(log))
        await self._processes.start(name, (sys.executable, *words), {})
        await self._processes.until(name, lambda: says(log))

    def _begin(
        self, falling: asyncio.TaskGroup, name: str, parts: Sequence[str], fall: Callable[[], Awaitable[None]]
    ) -> None:
        # What is being hit may end by itself while it starts again.
        fallen = [words for words in self._processes.fallen() if words.split()[0] not in self._down]
        self.trouble += [words for words in fallen if words not in self.trouble]
        self.blows[name] = self.blows.get(name, 0) + 1
        self._log.tell(f"blow.{name}")
        self._down.update(parts)

        async def blow() -> None:
            await fall()
            self._down.difference_update(parts)
            self._up_s.update(dict.fromkeys(parts, time.monotonic()))

        falling.create_task(blow(), name=name)

    def _tried(self) -> bool:
        told = b"".join(path.read_bytes() for path in self._processes.folder.glob("client-*.events"))
        return all(answer.search(told) for answer in ANSWERS)

    async def _client(self) -> None:
        clients = sorted(name for name in self._processes.parts if name.startswith("client-"))
        await self._processes.kill(self._draw.choice(clients))
        await self.client_starts()
