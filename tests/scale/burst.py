"""Many calls at once, each with its outcome and how long it took."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rollbox.errors import SandboxError

# Failures of one code whose words are kept.
WORDS = 3
T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Outcomes(Generic[R]):
    """What became of them.

    Attributes:
        took_s: of each that was answered well.
        at_s: when it was, from the beginning.
        answers: their answers.
        failed: the codes of the others, and how often.
        whole_s: from the first call to the last answer.
        words: of the first failures of each code.
    """

    took_s: list[float] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    answers: list[R] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    whole_s: float = 0.0
    words: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """How many a second."""
        return len(self.answers) / self.whole_s if self.whole_s else 0.0

    def figures(self) -> dict[str, Any]:
        """For the report: counts, rate, and quantiles in milliseconds."""
        told: dict[str, Any] = {"answered": len(self.answers), "failed": self.failed.total(), "per_second": self.rate}
        told |= {f"p{share}_ms": 1000 * quantile(self.took_s, share) for share in (50, 95, 99, 100)}
        return {**told, "failures": dict(self.failed), "words": self.words} if self.failed else told


def quantile(values: list[float], share: float) -> float:
    """The value that `share` percent do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] if ordered else 0.0


async def burst(call: Callable[[T], Awaitable[R]], things: Iterable[T], at_once: int) -> Outcomes[R]:
    """Call for each thing, at most so many at once."""
    outcomes, began_s, turns = Outcomes[R](), time.monotonic(), asyncio.Semaphore(at_once)

    async def one(thing: T) -> None:
        async with turns:
            asked_s = time.monotonic()
            try:
                answer = await call(thing)
            except SandboxError as error:
                outcomes.failed[error.code] += 1
                if outcomes.failed[error.code] <= WORDS:
                    outcomes.words.append(f"{error.code}: {error.detail}")
                return
            now_s = time.monotonic()
            outcomes.answers.append(answer)
            outcomes.took_s.append(now_s - asked_s)
            outcomes.at_s.append(now_s - began_s)

    async with asyncio.TaskGroup() as group:
        for thing in things:
            group.create_task(one(thing))
    outcomes.whole_s = time.monotonic() - began_s
    return outcomes
