"""Continuous batching without `await`: rollouts are plain functions, each in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

import rollbox
from rollbox.batch import Outcome
from rollbox.errors import InvalidArgument
from rollbox.sync.cancellable import CancellableCalls
from rollbox.sync.inner import ClientOwner, inner_of
from rollbox.sync.loop_thread import Iteration, run

Sample = TypeVar("Sample")
Value = TypeVar("Value")


class Batch(Generic[Sample, Value]):
    """As `rollbox.Batch`; a context manager. Iterate it for the outcomes.

    Nothing stops a thread in the middle of its own work. So a rollout that is cancelled, or whose time is over, ends
    with its call of rollbox: the one under way, else the next, raises `asyncio.CancelledError`; later ones are made, so
    that a `with` deletes its sandbox. Leaving the block waits for all rollouts.
    """

    def __init__(
        self,
        samples: Iterable[Sample],
        rollout: Callable[[Sample], Value],
        *,
        in_flight: int,
        timeout: float | None = None,
        image: Callable[[Sample], str | None] | None = None,
        image_nodes: int | None = 1,
        client: ClientOwner | None = None,
    ) -> None:
        """As `rollbox.Batch`.

        Args:
            samples: what their iterator waits for holds up no rollout. With `image` it holds up all calls of the
                program, and may make none itself.
            rollout: a plain function.
            in_flight: as of `rollbox.Batch`; one that was cancelled and still runs its own code does not count.
            timeout: as of `rollbox.Batch`.
            image: as of `rollbox.Batch`.
            image_nodes: as of `rollbox.Batch`.
            client: as of `rollbox.Batch`.

        Raises:
            InvalidArgument: also where `rollout` is a coroutine function.
        """
        if inspect.iscoroutinefunction(rollout):
            raise InvalidArgument(
                "rollout is a coroutine function", hint="Pass a plain function, or use rollbox.Batch."
            )
        ahead = image is not None or isinstance(samples, Sequence)
        self.inner: rollbox.Batch[Sample, Value] = rollbox.Batch(
            samples if ahead else _Coming(iter(samples)),
            partial(_rolled, rollout),
            in_flight=in_flight,
            timeout=timeout,
            image=image,
            image_nodes=image_nodes,
            client=inner_of(client),
        )
        self._hosted = _Hosted(self.inner)
        self._outcomes = Iteration(self._hosted)

    @property
    def running(self) -> Sequence[Sample]:
        """As `rollbox.Batch.running`."""
        return run(self._running())

    async def _running(self) -> Sequence[Sample]:
        return self.inner.running

    @property
    def not_begun(self) -> list[Sample]:
        """As `rollbox.Batch.not_begun`."""
        return self.inner.not_begun

    @property
    def cancelled(self) -> int:
        """As `rollbox.Batch.cancelled`."""
        return self.inner.cancelled

    def cancel(self, stale: Callable[[Sample], bool]) -> int:
        """As `rollbox.Batch.cancel`; `stale` may call nothing of rollbox."""
        return run(self._cancel(stale))

    async def _cancel(self, stale: Callable[[Sample], bool]) -> int:
        return self.inner.cancel(stale)

    def next(self, *, timeout: float | None = None) -> Outcome[Sample, Value]:
        """Return the next outcome.

        Args:
            timeout: seconds to wait; None: without limit.

        Raises:
            StopIteration: after the last sample.
            TimeoutError: none came in time; nothing is lost.
            SandboxError: as `rollbox.Batch`.
            BaseExceptionGroup: a rollout has raised something else.
        """
        return self._outcomes.next(timeout=timeout)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Outcome[Sample, Value]:
        return self.next()

    def __enter__(self) -> Self:
        run(self._hosted.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._hosted.end())


class _Hosted(Generic[Sample, Value]):
    """A batch on the loop. One task has its block from begin to end, whichever threads read."""

    def __init__(self, batch: rollbox.Batch[Sample, Value]) -> None:
        self._batch = batch
        self._leave = asyncio.Event()
        self._block: asyncio.Task[None] | None = None
        # Kept when its reader is cancelled, so that no outcome is lost.
        self._step: asyncio.Task[Outcome[Sample, Value]] | None = None
        self._raised: BaseException | None = None

    async def begin(self) -> None:
        entered = asyncio.Event()
        self._block = asyncio.create_task(self._held(entered), name="batch")
        await entered.wait()

    async def _held(self, entered: asyncio.Event) -> None:
        async with self._batch:
            entered.set()
            await self._leave.wait()

    async def end(self) -> None:
        if self._block is None:
            return
        self._leave.set()
        await asyncio.wait({self._block})
        await self._drop_step()
        self._raise()

    async def _drop_step(self) -> None:
        """End what a reader that gave up has left; nobody asks for its outcome or its error any more."""
        step, self._step = self._step, None
        if step is not None:
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)

    def _raise(self) -> None:
        """Raise what the block has raised, once."""
        if self._block is None or self._block.cancelled():
            return
        error = self._block.exception()
        if error is not None and error is not self._raised:
            self._raised = error
            raise error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome[Sample, Value]:
        if self._block is None:
            raise InvalidArgument("a batch is iterated within its `with`", hint="")
        self._step = self._step or asyncio.create_task(_step(self._batch), name="next outcome")
        await asyncio.wait({self._step, self._block}, return_when=asyncio.FIRST_COMPLETED)
        step, self._step = self._step, None
        if step.done():
            return step.result()
        step.cancel()
        self._raise()
        raise StopAsyncIteration


async def _step(batch: rollbox.Batch[Sample, Value]) -> Outcome[Sample, Value]:
    return await anext(batch)


class _Coming(AsyncIterator[Sample]):
    """Samples, each of which is waited for in a thread of its own."""

    def __init__(self, samples: Iterator[Sample]) -> None:
        self._samples = samples

    def _next(self) -> tuple[Sample, ...]:
        for sample in self._samples:
            return (sample,)
        return ()

    async def __anext__(self) -> Sample:
        found, error = await CancellableCalls().started(self._next, "rollbox-sample")
        if error is not None:
            raise _told(error)
        if not found:
            raise StopAsyncIteration
        return found[0]


async def _rolled(rollout: Callable[[Sample], Value], sample: Sample) -> Value:
    """One rollout in a thread; where it is cancelled, this waits for the end of the thread."""
    calls = CancellableCalls()
    end = calls.started(partial(rollout, sample), "rollbox-rollout")
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.shield(end)
    except asyncio.CancelledError as error:
        cancelled = error
        calls.cancel()
        await asyncio.wait({end})
    value, raised = end.result()
    if raised is not None:
        raise _told(raised)
    if cancelled is not None:
        raise cancelled
    return value  # type: ignore[return-value]


def _told(error: BaseException) -> BaseException:
    # On the loop these two would end it, with the calls of all other threads.
    if not isinstance(error, SystemExit | KeyboardInterrupt):
        return error
    made = RuntimeError(f"a thread of a batch has raised {error!r}")
    made.__cause__ = error
    return made
