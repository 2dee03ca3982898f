"""``Recordings``: commands that run in sandboxes of their owners, so that the files which they open come first."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.images.conversion_queue import Conversion
from controlplane.lifecycle.images.flight import Flight, Flights
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


class Recording(Flight[ConversionProgress]):
    """One recording with the conversion after it, as those who wait for it see it.

    Attributes:
        now: how far it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = ConversionProgress("recording", "a sandbox is started, in which the command runs")
        self.conversion: Conversion | None = None

    async def soon(self, within_s: float) -> bool:
        """Waits a moment; whether it is over."""
        over = await super().soon(within_s)
        if self.conversion is not None:
            self.now = replace(self.now, state="converting", text=self.conversion.progress)
        return over


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
        stopping = Problem("draining", "this control plane is stopping", retry_after_ms=1000)
        self._flights: Flights[_Key, Recording] = Flights(group, stopping)
        self._log = structlog.get_logger("images")

    def close(self) -> None:
        """Breaks off all recordings; their sandboxes end."""
        self._flights.close()

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
        if (known := self._flights.get(key)) is not None:
            return known
        under_way = self._flights.keys()
        own = sum(1 for one in under_way if one[0] == owner)
        if own >= MOST_OF_OWNER or len(under_way) >= MOST_RECORDINGS:
            raise Problem("capacity_unavailable", f"{own} recordings of yours are under way, of {len(under_way)}")
        recording = Recording()
        work = self._run(recording, owner, plain, converted, wish)
        return self._flights.begin(key, recording, work, f"record {plain.source}")

    async def _run(
        self, recording: Recording, owner: str, plain: Pin, converted: Pin, wish: RecordWish
    ) -> ConversionProgress | Problem:
        try:
            return await self._recorded(recording, owner, plain, converted, wish)
        except Problem as problem:
            return problem
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("recording failed", image=plain.source)
            return Problem("internal", f"the recording of {plain.source} failed in the control plane")

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
