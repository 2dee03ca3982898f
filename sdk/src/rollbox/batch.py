"""Continuous batching: a fixed number of rollouts in flight; each one that ends is replaced, stale ones are cancelled.

    async with Batch(samples, rollout, in_flight=256) as batch:
        async for outcome in batch:
            if not outcome.masked: learn(outcome.sample, outcome.value)
            batch.cancel(lambda sample: sample.step < oldest_step_of_use)

A rollout is a coroutine that creates its own sandbox (or lazy sandbox) in an `async with`. When it is cancelled, the
SDK kills the command that it waits for, with all its processes, and deletes the sandbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rollbox._problem import SandboxError
from rollbox.ahead import ImagesAhead
from rollbox.breaker import is_open
from rollbox.errors import InvalidArgument
from rollbox.recording import current
from rollbox.request import count
from rollbox.shared import GatewayOwner

Sample = TypeVar("Sample")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Sample, Value]):
    """The result of one rollout.

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
        """Whether the failure says nothing about the sample, to be left out of the loss: `error.mask_sample`."""
        return self.error is not None and self.error.mask_sample


class Batch(Generic[Sample, Value]):
    """Runs rollouts over samples, `in_flight` at a time. An asynchronous context manager; iterate it for the outcomes.

    Rollouts start with the first step of the iteration. Outcomes are buffered until they are read; while `in_flight` of
    them are unread, no new rollout starts (backpressure). Leaving the block cancels running rollouts and awaits them.
    """

    def __init__(
        self,
        samples: Iterable[Sample],
        rollout: Callable[[Sample], Coroutine[Any, Any, Value]],
        *,
        in_flight: int,
        image: Callable[[Sample], str | None] | None = None,
        image_nodes: int | None = 1,
        client: GatewayOwner | None = None,
    ) -> None:
        """Check the arguments; no rollout starts yet.

        Args:
            samples: taken one by one as slots become free; may be endless.
            rollout: called with each sample. A SandboxError that it raises is an outcome; any other exception is a
                bug of the program: it cancels all rollouts, and the `async with` raises it in an ExceptionGroup.
            in_flight: how many run at a time.
            image: the image that a sample's rollout starts from, None for none. With it `in_flight` samples are taken
                ahead of their turn, and their images pulled meanwhile; what fails is left to the create.
            image_nodes: on how many nodes each of these images is to be before its rollouts begin, which then prefer
                these nodes; None is all nodes, for a few images that all samples have.
            client: the client for that; None is the shared one of this event loop.

        Raises:
            InvalidArgument: `in_flight` or `image_nodes` is not at least 1.
        """
        if image_nodes is not None:
            count("image_nodes", image_nodes)
        self._samples: Iterator[Sample] = iter(samples)
        self._ahead = None
        if image is not None:
            self._samples = self._ahead = ImagesAhead(self._samples, image, in_flight, image_nodes, client)
        self._rollout = rollout
        self._in_flight = count("in_flight", in_flight)
        self._pulling: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[None], Sample] = {}
        self._done: deque[Outcome[Sample, Value]] = deque()
        self._changed = asyncio.Event()
        self._outage: SandboxError | None = None
        self._exhausted = False
        self._group: asyncio.TaskGroup | None = None
        self.not_begun: list[Sample] = []
        """Samples whose create the open circuit breaker refused."""
        self.cancelled = 0
        """How many rollouts were cancelled, by `cancel` or because something that they awaited was; without outcome."""

    @property
    def running(self) -> Sequence[Sample]:
        """The samples whose rollouts are in flight."""
        return list(self._running.values())

    def cancel(self, stale: Callable[[Sample], bool]) -> int:
        """Cancel every rollout in flight whose sample is stale; returns how many.

        Their slots are refilled at once; they have no outcome. They are cleaned up in the background: a command's
        process tree is killed, sandboxes are deleted.
        """
        found = [task for task, sample in self._running.items() if stale(sample)]
        for task in found:
            del self._running[task]
            task.cancel()
        self.cancelled += len(found)
        _note("cancelled", len(found))
        self._fill()
        self._changed.set()
        return len(found)

    async def __aenter__(self) -> Batch[Sample, Value]:
        self._group = await asyncio.TaskGroup().__aenter__()
        if self._ahead is not None:
            self._pulling = self._group.create_task(self._ahead.pull(), name="images of next samples")
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
        if self._pulling is not None:
            self._pulling.cancel()
        # An error of the block is raised unchanged; the task group would wrap it in an ExceptionGroup.
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(kind if cancelled else None, error if cancelled else None, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome[Sample, Value]:
        """Return the next outcome; the iteration ends after the last sample.

        Raises:
            SandboxError: the platform is out and the circuit breaker refuses creates; raised after the outcomes of all
                rollouts that were in flight. `not_begun` has the refused samples.
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
            # A rollout that `cancel` stopped has no slot any more; this one awaited something that was cancelled.
            if self._leave():
                self.cancelled += 1
                _note("cancelled")
                self._fill()
                self._changed.set()
            raise
        except BaseException:
            # The task group aborts and takes no more tasks.
            self._exhausted = True
            raise
        # A rollout that was cancelled meanwhile has no slot any more, and no outcome.
        if not self._leave():
            return
        _note("finished" if outcome.error is None else outcome.error.code)
        if outcome.error is not None and is_open(outcome.error):
            self._outage = self._outage or outcome.error
            self.not_begun.append(sample)
        else:
            self._done.append(outcome)
        self._fill()
        self._changed.set()

    def _leave(self) -> bool:
        """Free the slot of the calling rollout; returns whether it had one."""
        task = asyncio.current_task()
        return task is not None and self._running.pop(task, None) is not None


def _note(outcome: str, count: int = 1) -> None:
    if (run := current.current()) is not None and count:
        run.rolled_out(outcome, count)
