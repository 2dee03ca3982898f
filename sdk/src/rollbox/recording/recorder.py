"""Counts what the calls of a run do. Pure but for the clocks that it is given; not thread-safe, like the client."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rollbox._problem import SandboxError
from rollbox.record import End, SandboxRecord
from rollbox.recording import phases
from rollbox.recording.shares import Shares
from rollbox.recording.tails import Durations

MOST_SLOW = 10
CREATING, COMMAND, IDLE = "create", "exec", "idle"
"""What a sandbox does: it is waited for, a command runs in it, or none does."""

ENDS = frozenset(
    {
        "create_abandoned",
        "deleted",
        "disk_full",
        "idle_expired",
        "lease_expired",
        "node_lost",
        "oom_killed",
        "sandbox_evicted",
        "sandbox_forgotten",
        "sandbox_lost",
        "stopped_by_operator",
        "ttl_expired",
    }
)
"""Codes of calls that say that the sandbox has ended."""


class Failure(NamedTuple):
    """A kind of failure: of what ("create", "call"), with which code, whose fault, whether it masks the sample."""

    what: str
    code: str
    fault: str
    masked: bool


class Ended(NamedTuple):
    """A kind of end."""

    cause: str
    fault: str
    masked: bool


@dataclass(frozen=True, slots=True, order=True)
class SlowCreate:
    """One of the slowest creates.

    Attributes:
        took_ms: until it was ready, or had failed.
        sandbox_id: "" where the failure names none.
        image: of the create.
        source: "warm", "cold", or the code of its failure.
        cold_reason: why it was not warm, where its image has pools.
        parts_ms: its phases, which add up to `took_ms`.
    """

    took_ms: float
    sandbox_id: str
    image: str = field(compare=False)
    source: str = field(compare=False)
    cold_reason: str = field(compare=False)
    parts_ms: dict[str, float] = field(compare=False)


class Creating:
    """One create, or the one of a group, that is under way."""

    def __init__(self, recorder: Recorder, image: str, count: int, began_s: float) -> None:
        self._recorder = recorder
        self.image = image
        self.left = count
        self.began_s = began_s

    def made(self, record: SandboxRecord) -> None:
        """Note a sandbox that the call has got."""
        self.left -= 1
        self._recorder._made(self, record)  # noqa: SLF001 - its own

    def failed(self, error: SandboxError) -> None:
        """Note a sandbox of the call that could not be created."""
        self.left -= 1
        self._recorder._not_made(self, error)  # noqa: SLF001 - its own


@dataclass(slots=True)
class _Live:
    calls: int = 0
    ended: Ended | None = None
    masked: bool = False

    @property
    def state(self) -> str | None:
        return None if self.ended else COMMAND if self.calls else IDLE


class Recorder:
    """What one run has done so far.

    Args:
        name: of the run.
        now_s: a monotonic clock in seconds; tests pass their own.
        now_ms: the Unix time in ms.
        outer: of the run that it goes on in.
    """

    def __init__(
        self,
        name: str,
        now_s: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
        *,
        outer: Recorder | None = None,
    ) -> None:
        self.name = name
        self.outer = outer
        self.began_at_ms = round(now_ms())
        self.creates: Counter[str] = Counter()
        self.cold_reasons: Counter[str] = Counter()
        self.failures: Counter[Failure] = Counter()
        self.masked: Counter[str] = Counter()
        self.ends: Counter[Ended] = Counter()
        self.execs: Counter[str] = Counter()
        self.rollouts: Counter[str] = Counter()
        self.durations: defaultdict[str, Durations] = defaultdict(Durations)
        self.parts_ms: defaultdict[str, float] = defaultdict(float)
        self.slowest: list[SlowCreate] = []
        self.ended = False
        self._now_s = now_s
        self._began_s = now_s()
        self._ended_s: float | None = None
        self._live: dict[str, _Live] = {}
        self._shares = Shares(self._began_s)

    def end(self) -> None:
        """End the run: what its tasks do later is not counted. Idempotent."""
        if not self.ended:
            self._ended_s, self.ended = self._now_s(), True

    @property
    def wall_s(self) -> float:
        """How long it has run."""
        return self._until_s() - self._began_s

    @property
    def live(self) -> int:
        """How many sandboxes it has that have not ended, as far as it was told."""
        return sum(one.ended is None for one in self._live.values())

    def spent_s(self) -> dict[str, float]:
        """Return the wall time by what sandboxes did; the parts add up to `wall_s`.

        Creates and commands are divided further in proportion to their phases.
        """
        found: dict[str, float] = {}
        for state, spent_s in self._shares.spent_s(self._until_s()).items():
            parts = {name: ms for name, ms in self.parts_ms.items() if name.partition(".")[0] == state}
            total_ms = sum(parts.values())
            if total_ms:
                found |= {name: spent_s * ms / total_ms for name, ms in parts.items()}
            else:
                found[state] = spent_s
        return found

    def over_time(self) -> list[dict[str, float]]:
        """Return how many sandboxes did what over the time; see `Shares.over_time`."""
        return self._shares.over_time(self._until_s())

    @contextmanager
    def creating(self, body: Mapping[str, Any], count: int = 1) -> Iterator[Creating]:
        """Note a create while it is under way, and its failure.

        Args:
            body: of the create.
            count: how many sandboxes the call creates.
        """
        create = Creating(self, str(body.get("image", "")), count, self._now_s())
        self._move(None, CREATING, count)
        try:
            yield create
        except SandboxError as error:
            while create.left > 0:
                create.failed(error)
            raise
        finally:
            # Cancelled, or a bug of the program.
            self.creates["cancelled"] += create.left
            self._move(CREATING, None, create.left)

    def _made(self, create: Creating, record: SandboxRecord) -> None:
        took_ms = self._took_ms(create)
        source = record.source or "cold"
        parts = {"claim": took_ms} if source == "warm" else phases.of_start(record.timings_ms, took_ms)
        self.creates[source] += 1
        if source != "warm":
            self.cold_reasons[record.cold_reason or "no_pool"] += 1
        self.durations[f"create.{source}"].add(took_ms)
        if source != "warm":
            for name, part_ms in parts.items():
                self.durations[f"create.cold.{name}"].add(part_ms)
        self._note(SlowCreate(took_ms, record.id, create.image, source, record.cold_reason, parts))
        # A create with a key that was used before gives a sandbox that is there already.
        before = self._live.get(record.id)
        self._move(CREATING, None if before else IDLE)
        if before is None:
            self._live[record.id] = _Live()

    def _not_made(self, create: Creating, error: SandboxError) -> None:
        took_ms = self._took_ms(create)
        self.creates["failed"] += 1
        self.durations["create.failed"].add(took_ms)
        self._failed("create", error, masked_before=False)
        self._note(SlowCreate(took_ms, error.sandbox_id or "", create.image, error.code, "", {"failed": took_ms}))
        self._move(CREATING, None)

    @contextmanager
    def executing(self, sandbox_id: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Note an exec while it is under way; gives what notes its answer."""
        began_s, live = self._now_s(), self._begin_call(sandbox_id)

        def answered(answer: Mapping[str, Any]) -> None:
            took_ms = (self._now_s() - began_s) * 1000
            self.durations["exec"].add(took_ms)
            for name, part_ms in phases.of_exec(answer, took_ms).items():
                self.parts_ms[f"{COMMAND}.{name}"] += part_ms
                self.durations[f"exec.{name}"].add(part_ms)
            end = str(answer.get("end"))
            self.execs["non-zero" if end == "exited" and answer.get("exit_code") else end] += 1

        try:
            yield answered
        except SandboxError as error:
            self._call_failed(live, error)
            raise
        finally:
            self._end_call(live)

    def process(self, sandbox_id: str) -> Callable[[], None]:
        """Note a command that was spawned; returns what notes its end, once."""
        live, over = self._begin_call(sandbox_id), False

        def ended() -> None:
            nonlocal over
            if not over:
                over = True
                self._end_call(live)

        self.execs["spawned"] += 1
        return ended

    def deleted(self, sandbox_id: str, end: End | None = None) -> None:
        """Note that a sandbox was deleted.

        Args:
            sandbox_id: one of another run counts too, if this one has called it.
            end: what the platform has on record; None: it has told nothing.
        """
        live = self._live.pop(sandbox_id, None)
        if live is None:
            return
        told = Ended(end.cause, end.fault, end.mask_sample) if end else live.ended or Ended("deleted", "caller", True)
        self.ends[told] += 1
        if told.masked and told.cause != "deleted" and not live.masked:
            self.masked[told.cause] += 1
        before, live.ended = live.state, told
        self._move(before, None)

    def rolled_out(self, outcome: str, count: int = 1) -> None:
        """Note rollouts of a batch: "finished", "cancelled", or the code of their failure."""
        self.rollouts[outcome] += count

    def _begin_call(self, sandbox_id: str) -> _Live:
        live = self._live.get(sandbox_id)
        if live is None:
            # Connected to, or made outside the run.
            live = self._live[sandbox_id] = _Live()
            self._move(None, IDLE)
        before = live.state
        live.calls += 1
        self._move(before, live.state)
        return live

    def _end_call(self, live: _Live) -> None:
        before = live.state
        live.calls -= 1
        self._move(before, live.state)

    def _call_failed(self, live: _Live, error: SandboxError) -> None:
        self._failed("call", error, masked_before=live.masked)
        live.masked = live.masked or error.mask_sample
        if error.code in ENDS and live.ended is None:
            before = live.state
            live.ended = Ended(error.code, error.fault, error.mask_sample)
            self._move(before, None)

    def _failed(self, what: str, error: SandboxError, *, masked_before: bool) -> None:
        self.failures[Failure(what, error.code, error.fault, error.mask_sample)] += 1
        if error.mask_sample and not masked_before:
            self.masked[error.code] += 1

    def _note(self, create: SlowCreate) -> None:
        for name, part_ms in create.parts_ms.items():
            self.parts_ms[f"{CREATING}.{name}"] += part_ms
        heapq.heappush(self.slowest, create)
        if len(self.slowest) > MOST_SLOW:
            heapq.heappop(self.slowest)

    def _took_ms(self, create: Creating) -> float:
        return (self._now_s() - create.began_s) * 1000

    def _move(self, before: str | None, after: str | None, count: int = 1) -> None:
        if not self.ended:
            self._shares.move(self._now_s(), before, after, count)

    def _until_s(self) -> float:
        return self._now_s() if self._ended_s is None else self._ended_s
