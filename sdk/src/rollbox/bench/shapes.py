"""The arrival shapes of creates: one list for `rollbox bench` and for the benchmarks of rollbox itself."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from rollbox.bench import arrivals
from rollbox.bench.arrivals import Met


@dataclass(frozen=True, slots=True)
class Shape:
    """When creates arrive.

    Attributes:
        says: the shape in words, with its numbers.
        count: how many arrive.
        times_s: when each is due, from the begin on; empty: each when the one before is answered.
    """

    says: str
    count: int
    times_s: tuple[float, ...] = ()

    def cut(self, most: int) -> Shape:
        """Return its first arrivals, at most so many."""
        if most >= self.count:
            return self
        return replace(self, says=f"{self.says}, its first {most}", count=most, times_s=self.times_s[:most])

    async def play(self, call: Callable[[int], Awaitable[object]], *, for_s: float = math.inf) -> list[Met]:
        """Make the calls; an open loop waits for no answer.

        Args:
            call: gets the number of its arrival.
            for_s: no call of a sequential shape begins after so many seconds.
        """
        if self.times_s:
            return await arrivals.open_loop(self.times_s, call)
        return await arrivals.one_by_one(self.count, call, for_s=for_s)


SHAPES = {
    "sequential": Shape("sequential, 100", 100),
    "staggered": Shape("staggered, 100 in 2 s", 100, tuple(arrivals.staggered(100, 0.02))),
    "burst-100": Shape("a burst of 100", 100, tuple(arrivals.burst(100))),
    "burst-300": Shape("a burst of 300", 300, tuple(arrivals.burst(300))),
    "poisson": Shape("Poisson, 45/s, 10 s", 450, tuple(arrivals.poisson(450, 45.0))),
}
"""By name, in the order in which they are run."""
