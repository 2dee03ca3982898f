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
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rollbox._problem import SandboxError
from rollbox.breaker import is_open
from rollbox.errors import ExecDeadline, InvalidArgument
from rollbox.image_prefetcher import ImagePrefetcher
from rollbox.recording import current
from rollbox.request import count, milliseconds
from rollbox.shared import GatewayOwner

# So many outcomes without another one are no chance.
_SAME_MISTAKES = 30
# What a program gets wrong for every sample alike. Not what a model may do in each of its sandboxes.
_MISTAKES = frozenset(
    (
        "checkpoint_expired",
        "checkpoint_not_found",
        "image_not_found",
        "invalid_argument",
        "not_found",
        "unauthenticated",
        "unsupported",
    )
)
Sample = TypeVar("Sample")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Sample, Value]):
    """The result of one rollout.

    Attributes:
        sample: what the rollout was called with.
        value: what it returned; None when it failed.
        error: the SandboxError that it raised, or that its time was over; None when it returned.
        timed_out: a limit of time has ended it, the batch's or one of its own. It is masked: nobody knows for what.
    """

    sample: Sample
    value: Value | None = None
    error: SandboxError | None = None
    timed_out: bool = False

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
        samples: Iterable[Sample] | AsyncIterable[Sample],
        rollout: Callable[[Sample], Coroutine[Any, Any, Value]],
        *,
        in_flight: int,
        timeout: float | None = None,
        image: Callable[[Sample], str | None] | None = None,
        image_nodes: int | None = 1,
        client: GatewayOwner | None = None,
    ) -> None:
        """Check the arguments; no rollout starts yet.

        Args:
            samples: taken one by one as slots become free; may be endless, or asynchronous: what it waits for holds up
                no rollout.
            rollout: called with each sample. A SandboxError that it raises is an outcome, and so is the TimeoutError of
                an `asyncio.timeout` in it; any other exception is a bug of the program: it cancels all rollouts, and
                the `async with` raises it in an ExceptionGroup.
            in_flight: how many run at a time.
            timeout: seconds that a rollout may take; then it is cancelled, with an outcome that has `timed_out`.
            image: the image that a sample's rollout starts from, None for none. With it `in_flight` samples are taken
                ahead of their turn, and their images pulled meanwhile; what fails is left to the create.
            image_nodes: on how many nodes each of these images is to be before its rollouts begin, which then prefer
                these nodes; None is all nodes, for a few images that all samples have.
            client: the client for that; None is the shared one of this event loop.

        Raises:
            InvalidArgument: `in_flight` or `image_nodes` is not at least 1, `timeout` is no number of seconds, or
                `image` is given for asynchronous samples, which cannot be looked at ahead.
        """
        if image_nodes is not None:
            count("image_nodes", image_nodes)
        self._coming: AsyncIterator[Sample] | None = None
        if isinstance(samples, AsyncIterable):
            if image is not None:
                raise InvalidArgument("image looks ahead at samples, which asynchronous ones do not allow", hint="")
            self._coming, samples = aiter(samples), ()
        self._samples: Iterator[Sample] = iter(samples)
        self._timeout_s = None if timeout is None else milliseconds("timeout", timeout) / 1000
        self._ahead = None
        if image is not None:
            self._samples = self._ahead = ImagePrefetcher(self._samples, image, in_flight, image_nodes, client)
        self._rollout = rollout
        self._in_flight = count("in_flight", in_flight)
        self._pulling: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self._mistakes = 0
        self._mistake: SandboxError | None = None
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
        for helper in (self._pulling, self._taking):
            if helper is not None:
                helper.cancel()
        # An error of the block is raised unchanged; the task group would wrap it in an ExceptionGroup.
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(kind if cancelled else None, error if cancelled else None, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome[Sample, Value]:
        """Return the next outcome; the iteration ends after the last sample.

        Raises:
            SandboxError: the platform is out and the circuit breaker refuses creates; raised after the outcomes of all
                rollouts that were in flight. `not_begun` has the refused samples. Or the first thirty outcomes have
                failed by the same mistake of the program, such as an image that there is not.
        """
        if self._group is None:
            raise InvalidArgument("a batch is iterated within its `async with`")
        while True:
            self._fill()
            if self._done:
                return self._done.popleft()
            if not self._running and self._taking is None:
                raise self._outage or StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def _fill(self) -> None:
        while self._group is not None and self._has_place():
            if self._coming is not None:
                self._taking = self._taking or self._group.create_task(self._take(self._coming), name="next sample")
                return
            try:
                sample = next(self._samples)
            except StopIteration:
                self._exhausted = True
                return
            self._begin(sample)

    def _begin(self, sample: Sample) -> None:
        if self._group is not None:
            self._running[self._group.create_task(self._run(sample))] = sample

    async def _take(self, coming: AsyncIterator[Sample]) -> None:
        try:
            self._begin(await anext(coming))
        except StopAsyncIteration:
            self._exhausted = True
        finally:
            self._taking = None
            self._changed.set()
        self._fill()

    def _has_place(self) -> bool:
        if self._exhausted or self._outage is not None:
            return False
        return len(self._running) < self._in_flight and len(self._done) < self._in_flight

    async def _run(self, sample: Sample) -> None:
        outcome: Outcome[Sample, Value]
        try:
            async with asyncio.timeout(self._timeout_s):
                outcome = Outcome(sample, value=await self._rollout(sample))
        except SandboxError as error:
            outcome = Outcome(sample, error=error)
        except TimeoutError as error:
            outcome = Outcome(sample, error=self._too_long(error), timed_out=True)
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
            self._judge(outcome.error)
        self._fill()
        self._changed.set()

    def _too_long(self, error: TimeoutError) -> SandboxError:
        limit = "a limit of its own" if self._timeout_s is None else f"its limit of {self._timeout_s:g} s"
        made = ExecDeadline(f"the rollout has passed {limit}", hint="Allow more time, or look what it waited for.")
        # It may have waited for the platform as well as for its own commands.
        made.mask_sample = True
        made.__cause__ = error
        return made

    def _judge(self, error: SandboxError | None) -> None:
        """Stop where the first outcomes have all failed by one mistake, which the rest would repeat."""
        if self._mistakes < 0:
            return
        first = self._mistake or error
        if error is None or first is None or not _is_mistake(error) or _told(error) != _told(first):
            self._mistakes = -1
            return
        self._mistake, self._mistakes = first, self._mistakes + 1
        if self._mistakes >= _SAME_MISTAKES:
            detail = f"the first {_SAME_MISTAKES} rollouts have failed alike, so no more are begun: {error.detail}"
            self._outage = self._outage or type(error)(detail, hint=error.hint, details=error.details)

    def _leave(self) -> bool:
        """Free the slot of the calling rollout; returns whether it had one."""
        task = asyncio.current_task()
        return task is not None and self._running.pop(task, None) is not None


def _is_mistake(error: SandboxError) -> bool:
    # An argument of one call in a sandbox says nothing of the next: a command that is not there, a name too long.
    in_sandbox = error.code == "invalid_argument" and "reason" in error.details and error.sandbox_id is not None
    return error.code in _MISTAKES and not in_sandbox


def _told(error: SandboxError) -> tuple[str, str]:
    return error.code, error.detail.replace(error.sandbox_id or "\0", "")


def _note(outcome: str, count: int = 1) -> None:
    if (run := current.current()) is not None and count:
        run.rolled_out(outcome, count)
