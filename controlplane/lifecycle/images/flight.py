"""``Flight``: work that is done once for all who wait for it; ``Flights``: those under way, by what they are for."""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Generic, TypeVar

from controlplane.errors import Problem

Made = TypeVar("Made")
Key = TypeVar("Key", bound=Hashable)
AnyFlight = TypeVar("AnyFlight", bound="Flight[Any]")


class Flight(Generic[Made]):
    """One piece of work, as those who wait for it see it.

    Attributes:
        over: what has come of it.
    """

    def __init__(self) -> None:
        self.over: asyncio.Future[Made | Problem] = asyncio.get_running_loop().create_future()

    async def soon(self, within_s: float) -> bool:
        """Waits a moment; whether it is over."""
        return bool((await asyncio.wait({self.over}, timeout=within_s))[0])

    def answer(self) -> Made:
        """What was made, once it is over.

        Raises:
            Problem: why nothing was.
        """
        answer = self.over.result()
        if isinstance(answer, Problem):
            # A new one for each: an exception collects the tracebacks of all that raise it.
            raise Problem(answer.code, answer.detail, retry_after_ms=answer.retry_after_ms, **answer.details)
        return answer

    def end(self, outcome: Made | Problem) -> None:
        """Answers all who wait, unless they have an answer."""
        if not self.over.done():
            self.over.set_result(outcome)


class Flights(Generic[Key, AnyFlight]):
    """What is under way.

    Args:
        group: owns the work, which several may wait for.
        broken_off: what those who wait are answered when this control plane stops.
    """

    def __init__(self, group: asyncio.TaskGroup, broken_off: Problem) -> None:
        self._group = group
        self._broken_off = broken_off
        self._known: dict[Key, AnyFlight] = {}
        self._tasks: dict[AnyFlight, asyncio.Task[Any]] = {}

    def get(self, key: Key) -> AnyFlight | None:
        """The flight of a key, to join it; None: there is none."""
        return self._known.get(key)

    def keys(self) -> list[Key]:
        """Those that can be joined."""
        return list(self._known)

    def begin(self, key: Key, flight: AnyFlight, work: Coroutine[Any, Any, Any], name: str) -> AnyFlight:
        """Begins a flight, which is returned.

        Args:
            key: by which others join it.
            flight: those who wait see it.
            work: what it returns ends the flight.
            name: of its task.
        """
        self._known[key] = flight
        task = self._tasks[flight] = self._group.create_task(work, name=name)

        def done(ended: asyncio.Task[Any]) -> None:
            del self._tasks[flight]
            self._forget(key, flight)
            if ended.cancelled() or ended.exception() is not None:
                flight.end(self._broken_off)
            else:
                flight.end(ended.result())

        task.add_done_callback(done)
        return flight

    def leave(self, key: Key, flight: AnyFlight) -> None:
        """Breaks off a flight that nobody waits for any more; who comes now begins another one."""
        self._forget(key, flight)
        if flight in self._tasks:
            self._tasks[flight].cancel()

    def close(self) -> None:
        """Breaks off all."""
        for task in self._tasks.values():
            task.cancel()

    def _forget(self, key: Key, flight: AnyFlight) -> None:
        if self._known.get(key) is flight:
            del self._known[key]
