"""``Recordings``: commands that run in sandboxes of their owners, so that the files which they open come first."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.images.conversion_queue import Conversion
from controlplane.lifecycle.images.lazily import LazyStarts
from controlplane.lifecycle.images.pins import Pin
from controlplane.lifecycle.images.progress import ConversionProgress

# Of all owners at one replica, and of one.
MOST_RECORDINGS: Final = 16
MOST_OF_OWNER: Final = 4


@dataclass(frozen=True, slots=True)
class RecordWish:
    """What is recorded.

    Attributes:
        command: a line for the sandbox's shell.
        within_ms: how long it may run.
    """

    command: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a command that was recorded.

    Attributes:
        opened: the paths of the files that the sandbox opened until it was over, in the order of the first times.
        more: these are not all.
        failed: how the command failed; empty: it did not.
    """

    opened: tuple[str, ...]
    more: bool = False
    failed: str = ""


# Runs a command in a sandbox of an owner, from an image that its node mounts.
Record = Callable[[str, str, RecordWish], Awaitable[Run]]
_Key = tuple[str, str, RecordWish]


class Recording:
    """One recording with the conversion after it, as those who wait for it see it.

    Attributes:
        now: how far it is.
    """

    def __init__(self) -> None:
        self.now = ConversionProgress("recording", "a sandbox is started, in which the command runs")
        self.conversion: Conversion | None = None
        self.over: asyncio.Future[ConversionProgress | Problem] = asyncio.get_running_loop().create_future()

    async def soon(self, within_s: float) -> bool:
        """Waits a moment; whether it is over."""
        await asyncio.wait({self.over}, timeout=within_s)
        if self.conversion is not None:
            self.now = replace(self.now, state="converting", text=self.conversion.progress)
        return self.over.done()

    def outcome(self) -> ConversionProgress:
        """What is offered, once it is over.

        Raises:
            Problem: why nothing is.
        """
        answer = self.over.result()
        if isinstance(answer, Problem):
            # A new one for each: an exception collects the tracebacks of all that raise it.
            raise Problem(answer.code, answer.detail, retry_after_ms=answer.retry_after_ms, **answer.details)
        return answer


class Recordings:
    """Records commands, and has recorded copies made; equal calls of an owner join.

    Args:
        lazily: has images converted.
        record: runs a command.
        group: owns the recordings, which outlive callers that leave.
    """

    def __init__(self, lazily: LazyStarts, record: Record, group: asyncio.TaskGroup) -> None:
        self._lazily = lazily
        self._record = record
        self._group = group
        self._under_way: dict[_Key, tuple[Recording, asyncio.Task[None]]] = {}
        self._log = structlog.get_logger("images")

    def close(self) -> None:
        """Breaks off all recordings; their sandboxes end."""
        for _, task in self._under_way.values():
            task.cancel()

    def joined(self, owner: str, plain: Pin, converted: Pin, wish: RecordWish) -> Recording:
        """A recording, begun unless it is under way.

        Args:
            owner: has the right to the image.
            plain: its plain copy.
            converted: the converted copy of all owners, from which the command's sandbox is started.
            wish: what is recorded.

        Raises:
            Problem: capacity_unavailable: too many are under way.
        """
        key = (owner, plain.source, wish)
        if (known := self._under_way.get(key)) is not None:
            return known[0]
        own = sum(1 for one in self._under_way if one[0] == owner)
        if own >= MOST_OF_OWNER or len(self._under_way) >= MOST_RECORDINGS:
            raise Problem("capacity_unavailable", f"{own} recordings of yours are under way, of {len(self._under_way)}")
        recording = Recording()
        work = self._run(recording, owner, plain, converted, wish)
        task = self._group.create_task(work, name=f"record {plain.source}")
        self._under_way[key] = (recording, task)

        def done(_: asyncio.Task[None]) -> None:
            del self._under_way[key]
            if not recording.over.done():
                recording.over.set_result(Problem("draining", "this control plane is stopping", retry_after_ms=1000))

        task.add_done_callback(done)
        return recording

    async def _run(self, recording: Recording, owner: str, plain: Pin, converted: Pin, wish: RecordWish) -> None:
        try:
            outcome: ConversionProgress | Problem = await self._recorded(recording, owner, plain, converted, wish)
        except Problem as problem:
            outcome = problem
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("recording failed", image=plain.source)
            outcome = Problem("internal", f"the recording of {plain.source} failed in the control plane")
        recording.over.set_result(outcome)

    async def _recorded(
        self, recording: Recording, owner: str, plain: Pin, converted: Pin, wish: RecordWish
    ) -> ConversionProgress:
        run = await self._record(owner, converted.name, wish)
        recording.now = replace(recording.now, files=len(run.opened), more=run.more, run_failed=run.failed)
        ran = converted.ran
        if run.opened:
            conversion = await self._lazily.conversion(owner, plain, run.opened)
            if isinstance(conversion, Conversion):
                recording.conversion = conversion
                ran = await conversion.digest()
        return replace(recording.now, state="offered", text="", digest=plain.digest, ran=ran)
