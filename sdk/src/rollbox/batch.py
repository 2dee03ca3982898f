"""Continuous batching: so many rollouts in flight, each that ends replaced at once, stale ones cancelled.

    async with Batch(samples, rollout, in_flight=256) as batch:
        async for outcome in batch:
            if not outcome.masked: learn(outcome.sample, outcome.value)
            batch.cancel(lambda sample: sample.step < oldest_step_of_use)

A rollout is a coroutine that makes its own sandbox (or lazy sandbox) in an `async with`. Cancelling it kills the
command that it waits for with all its processes and deletes the sandbox, which is the SDK's own doing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rollbox._problem import SandboxError
from rollbox.breaker import is_open
from rollbox.errors import InvalidArgument
from rollbox.request import count

Sample = TypeVar("Sample")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Sample, Value]):
    """What came of one rollout.

    Attributes:
        sample: what the rollout was called with.
        value: what it returned; None when it failed.
        error: the SandboxError that it raised; None when it returned.
    """

    sample: Sample
    value: Value | None = None
    error: SandboxError | None = None

    @property
    def masked(self) -> bool:
        """Whether it says nothing about the sample, which is left out of the loss: `error.mask_sample`."""
        return self.error is not None and self.error.mask_sample


class Batch(Generic[Sample, Value]):
    """Rollouts over samples, `in_flight` at a time. An asynchronous context manager; iterate it for the outcomes.

    Rollouts run from the first step of the iteration on. One that is done waits for the reader: at most `in_flight`
    outcomes wait, then no new rollout begins. Leaving the block cancels what still runs and waits until it has ended.
    """

    def __init__(
        self, samples: Iterable[Sample], rollout: Callable[[Sample], Coroutine[Any, Any, Value]], *, in_flight: int
    ) -> None:
        """Nothing runs yet.

        Args:
            samples: taken one by one as places get free; may be endless.
            rollout: called with each sample. A SandboxError that it raises is an outcome; any other exception is a
                fault of the program: it cancels all rollouts and is raised (in a group) by the `async with`.
            in_flight: how many run at a time.

        Raises:
            InvalidArgument: `in_flight` is not at least 1.
        """
        self._samples = iter(samples)
        self._rollout = rollout
        self._in_flight = count("in_flight", in_flight)
        self._running: dict[asyncio.Task[None], Sample] = {}
        self._done: deque[Outcome[Sample, Value]] = deque()
        self._changed = asyncio.Event()
        self._outage: SandboxError | None = None
        self._exhausted = False
        self._group: asyncio.TaskGroup | None = None
        self.not_begun: list[Sample] = []
        """Samples whose create was refused because the platform is out: nothing of them ran."""
        self.cancelled = 0
        """How many rollouts were cancelled, by `cancel` or by what they waited for: they have no outcome."""

    @property
    def running(self) -> Sequence[Sample]:
        """The samples whose rollouts are in flight."""
        return list(self._running.values())

    def cancel(self, stale: Callable[[Sample], bool]) -> int:
        """Cancel every rollout in flight whose sample is stale; returns how many.

        Their places are free at once and refilled; they have no outcome. What they hold ends in the background: the
        process tree of a command dies, sandboxes are deleted.
        """
        found = [task for task, sample in self._running.items() if stale(sample)]
        for task in found:
            del self._running[task]
            task.cancel()
        self.cancelled += len(found)
        self._fill()
        self._changed.set()
        return len(found)

    async def __aenter__(self) -> Batch[Sample, Value]:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._group is None:
            return
        self._exhausted = True
        for task in self._running:
            task.cancel()
        self._running.clear()
        # An error of the block is raised as it is; the group would wrap it.
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(kind if cancelled else None, error if cancelled else None, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome[Sample, Value]:
        """Return the next outcome; the end of the iteration is the end of the samples.

        Raises:
            SandboxError: the platform is out and creates are stopped; raised once the rollouts that were in flight have
                ended and been handed out. `not_begun` has the samples that were refused.
        """
        if self._group is None:
            raise InvalidArgument("a batch is iterated within its `async with`")
        while True:
            self._fill()
            if self._done:
                return self._done.popleft()
            if not self._running:
                raise self._outage or StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def _fill(self) -> None:
        while self._group is not None and self._has_place():
            try:
                sample = next(self._samples)
            except StopIteration:
                self._exhausted = True
                return
            task = self._group.create_task(self._run(sample))
            self._running[task] = sample

    def _has_place(self) -> bool:
        if self._exhausted or self._outage is not None:
            return False
        return len(self._running) < self._in_flight and len(self._done) < self._in_flight

    async def _run(self, sample: Sample) -> None:
        outcome: Outcome[Sample, Value]
        try:
            outcome = Outcome(sample, value=await self._rollout(sample))
        except SandboxError as error:
            outcome = Outcome(sample, error=error)
        except asyncio.CancelledError:
            # Of its own where it has its place still: it waited for something that somebody cancelled.
            if self._leave():
                self.cancelled += 1
                self._fill()
                self._changed.set()
            raise
        except BaseException:
            # The group is ending: it takes no more tasks.
            self._exhausted = True
            raise
        # One that was cancelled meanwhile has no place any more, and no outcome.
        if not self._leave():
            return
        if outcome.error is not None and is_open(outcome.error):
            self._outage = self._outage or outcome.error
            self.not_begun.append(sample)
        else:
            self._done.append(outcome)
        self._fill()
        self._changed.set()

    def _leave(self) -> bool:
        """Give up the place of the rollout that calls this; returns whether it had one."""
        task = asyncio.current_task()
        return task is not None and self._running.pop(task, None) is not None
