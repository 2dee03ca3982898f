"""Bringing one sandbox up: its turn in the line, the cluster, then the readiness push, wherever it lands."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal

from controlplane.cluster import Boot, Pulling
from controlplane.errors import Code, Problem
from controlplane.lifecycle.datasets import Datasets
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.images import Conversion, Copy, Images, LazyStarts, Pin
from controlplane.lifecycle.record.changes import waited_for
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.starting.fallback import Fallback
from controlplane.lifecycle.starting.phases import Phases
from controlplane.lifecycle.starting.readiness import Readiness
from controlplane.lifecycle.starting.replaced_pods import ReplacedPods
from controlplane.lifecycle.waiting.gates.room import RoomGate
from controlplane.lifecycle.waiting.gates.slot import SlotGate
from controlplane.lifecycle.waiting.line import Line
from controlplane.lifecycle.waiting.near_waits import NearWaits
from controlplane.lifecycle.waiting.room_notes import RoomNotes
from controlplane.model import Sandbox, State, dump_record
from controlplane.model.states import Change, Event

# Ends of starts that say something about the image; the last one only of a converted copy, on a node that has it.
_OF_IMAGES: Final = frozenset({"image_not_found", "image_pull_failed"})
_NEVER_READY: Final = "start_timeout"
# A copy that takes longer is told in the timeline; one that is there costs one request.
NOTED_AFTER_S: Final = 0.25
# What a node pulls is one call to the cluster, for which nobody waits longer.
ASKED_WITHIN_S: Final = 0.4
# The starts of a herd are overdue at the same time; the rest is told less.
ASKED_AT_ONCE: Final = 8


class Starter:
    """Brings sandboxes up. Owns no task: the caller of ``bring_up`` does."""

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        settlements: Settlements,
        *,
        readiness: Readiness,
        images: Images,
        lazily: LazyStarts,
        datasets: Datasets,
        at_once: int,
        most_pending: int,
    ) -> None:
        self._cluster = deps.cluster
        self._ledger = ledger
        self._settlements = settlements
        self._readiness = readiness
        self._notes = readiness.notes
        self._images = images
        self._lazily = lazily
        self._datasets = datasets
        self._key = deps.key
        self._clock = deps.clock
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        self._awaited: dict[str, Copy | Conversion] = {}
        room = RoomGate(deps.cluster, deps.clock, deps.metrics, most_pending, RoomNotes(ledger, deps.clock).write)
        slots, near = SlotGate(store, deps.cluster, at_once), NearWaits(deps.cluster, deps.clock)
        self.line = Line(deps.cluster, room, slots, near)
        keep_whole = partial(room.again, whole=True)
        self._fallback = Fallback(deps.cluster, ledger, lazily, deps.clock, again=keep_whole)
        self.replaced_pods = ReplacedPods(deps.cluster, ledger, deps.metrics, room)

    async def bring_up(self, sandbox: Sandbox) -> None:
        """Brings an admitted sandbox up; returns when its start has succeeded, or the sandbox has ended.

        A start that another replica began and left is taken over: the cluster is called again, which is safe.

        Raises:
            Problem: the cluster's. The caller ends the sandbox with it. This call has no deadline of its own; the
                caller cancels it.
        """
        begun = sandbox.state is State.STARTING
        phases = await self._notes.phases(sandbox) if begun else Phases(self._clock, sandbox)
        if sandbox.state is State.REQUESTED:
            queued = await retried_while_away(lambda: self._ledger.take(sandbox.id, Event.QUEUE, known=sandbox))
            if queued is None:
                return
            sandbox = queued
        # Before its turn: a registry that is slow takes no slot, and neither does a copy.
        plain = await self._copied(sandbox, await self._images.pin(sandbox), phases)
        pin = await self._chosen(sandbox, plain, phases)
        spec = sandbox.spec.model_copy(update={"image": pin.name})
        async with self.line.turn(sandbox, spec, self._images.layers(pin)) as avoid:
            phases.waited()
            if sandbox.state is State.QUEUED and self._clock.now_ms() >= sandbox.begin_by_ms:
                # Its wait has used up the start timeout: the cluster could only fail it.
                raise self.overdue(sandbox)
            await self._start(sandbox, pin, plain, phases, avoid)

    def unplaced(self, owner: str | None = None) -> Sequence[tuple[Sandbox, Problem, int | None]]:
        """The starts at all replicas that wait for room, of one owner or of all, with reason and estimated wait (ms).

        Oldest first.
        """
        places = (
            self.line.room.told.place(self._ledger.held(one.id) or one) for one in self.line.room.told.waiting(owner)
        )
        return [(one.sandbox, one.problem(), one.place.estimate_ms) for one in places if one is not None]

    def refusal(self, sandbox: Sandbox) -> Problem | None:
        """Why no node takes a sandbox that is to start; None: one does, or nobody has said so yet."""
        place = self.line.room.told.place(sandbox) if sandbox.state in (State.QUEUED, State.STARTING) else None
        return None if place is None else place.problem()

    async def pulling(self, sandbox: Sandbox) -> Pulling | None:
        """What the node of a sandbox that starts pulls for it; None: nothing, or nobody says it within a moment."""
        if sandbox.state is not State.STARTING:
            return None
        try:
            async with asyncio.timeout(ASKED_WITHIN_S), self._asking:
                return await self._cluster.pulling(sandbox.id)
        except (Problem, TimeoutError):
            return None

    async def pulling_told(self, sandbox: Sandbox) -> str:
        """As ``pulling``, for people; empty: nothing."""
        pull = await self.pulling(sandbox)
        return "" if pull is None else self.told(pull)

    def told(self, pull: Pulling) -> str:
        """A pull that is under way, for people."""
        for_s = max(0, self._clock.now_ms() - pull.since_ms) / 1000
        return f"node {pull.node} has been pulling {pull.image} for {for_s:.0f} s"

    def overdue(self, sandbox: Sandbox, pull: Pulling | None = None) -> Problem:
        """The failure of a start whose deadline has passed; it names what the start was waiting for.

        Args:
            sandbox: the record.
            pull: what its node was pulling a moment ago.
        """
        if (awaited := self._awaited.get(sandbox.id)) is not None:
            return awaited.overdue()
        within = f"within its start timeout of {sandbox.asked_start_ms / 1000:g} s"
        if self.line.room.told.place(sandbox) is not None:
            return self.line.room.told.refuse(sandbox)
        if sandbox.state in (State.REQUESTED, State.QUEUED):
            ahead = f"{self.line.slots.taken} starts were in flight, {self.line.slots.waiting} waited"
            return Problem("start_queue_timeout", f"{sandbox.id} got no turn {within}; {ahead}")
        waited = "" if pull is None else f": {self.told(pull)}"
        return Problem("start_timeout", f"{sandbox.id} was not ready {within}{waited}")

    async def _copied(self, sandbox: Sandbox, pin: Pin, phases: Phases) -> Pin:
        """The pin of what nodes pull: waits until the private registry has it."""
        if sandbox.state is State.STARTING and pin.pulled and not pin.ran:
            return pin  # another replica has begun to start it from where it is
        if (there := self._images.copied(pin)).ran:
            return there
        async with self._images.copying(sandbox, pin) as copy:
            if copy is None:
                return there
            try:
                digest = await self._digest(sandbox, copy, phases, "copy")
            except Problem as problem:
                if problem.code != "image_store_full":
                    raise
                return await self._images.uncopied(sandbox, pin, problem)
        return self._images.copied(pin, digest)

    async def _chosen(self, sandbox: Sandbox, pin: Pin, phases: Phases) -> Pin:
        """The plain copy, or the one that nodes mount lazily, for which a start that asks for it waits."""
        chosen = await self._lazily.chosen(sandbox.owner, sandbox.spec, pin)
        if isinstance(chosen, Pin):
            return chosen
        return self._lazily.converted(pin, await self._digest(sandbox, chosen, phases, "convert"))

    async def _digest(
        self, sandbox: Sandbox, awaited: Copy | Conversion, phases: Phases, word: Literal["copy", "convert"]
    ) -> str:
        def noted(record: Sandbox) -> Sandbox:
            return waited_for(record, self._clock.now_ms(), word)

        phases.waited()
        self._awaited[sandbox.id] = awaited
        try:
            if sandbox.state is State.QUEUED and not await awaited.soon(NOTED_AFTER_S):
                await retried_while_away(lambda: self._ledger.change(sandbox.id, noted))
            return await awaited.digest()
        finally:
            del self._awaited[sandbox.id]
            phases.waited(word)

    async def _start(self, sandbox: Sandbox, pin: Pin, plain: Pin, phases: Phases, avoid: Sequence[str]) -> None:
        taken_on = sandbox.state is State.STARTING
        if not taken_on:
            begun = await self._begun(sandbox, pin, phases)
            if begun is None:
                return  # ended while it waited
            sandbox = begun
        over = self._settlements.expect(sandbox.id)
        if taken_on:
            # Another replica may have accepted its push while it waited in the queue here; the push is not repeated.
            await retried_while_away(lambda: self._ledger.refresh(sandbox.id))
            if over.done():
                return
        # Registered before the cluster is called: the push may arrive before the cluster's answer.
        token, layers = self._key.readiness(sandbox).text, self._images.layers(pin)
        with self._readiness.awaited(sandbox.id, phases, token) as started, self._judging(sandbox, pin, over) as judged:
            boot = Boot(
                token,
                self._key.public_text,
                dump_record(sandbox),
                avoid,
                layers,
                start_by_ms=sandbox.start_by_ms,
                unclaimed=sandbox.unclaimed,
                mounts=self._datasets.bound(sandbox),
                interpreter=sandbox.interpreter,
            )
            spec = sandbox.spec.model_copy(update={"image": pin.name})
            with self.replaced_pods.under_way(sandbox.id, spec, boot):
                answer = await self._cluster.start(sandbox.id, spec, boot)
                first = phases.answered(answer)
                started.set_result(answer)
                if first:
                    await self._notes.write(sandbox, phases)
                if taken_on and (placement := self._cluster.placement(sandbox.id)) and placement.turned_away_by:
                    await self.replaced_pods.again(placement)
                judged.append(await self._fallback.watch(sandbox, pin, plain, boot, over))
                await asyncio.shield(over)

    async def _begun(self, sandbox: Sandbox, pin: Pin, phases: Phases) -> Sandbox | None:
        """The record, with what it begins with; None: it has ended."""
        change = Change(
            timings_ms=dict(phases.timings_ms),
            image_digest=pin.digest,
            image_ran=pin.ran,
            image_stale=pin.stale,
            image_pulled=pin.pulled,
            image_pulled_why=pin.pulled_why,
        )
        return await retried_while_away(lambda: self._ledger.take(sandbox.id, Event.START, change, sandbox))

    @contextmanager
    def _judging(self, sandbox: Sandbox, pin: Pin, over: "asyncio.Future[Any]") -> Iterator[list[Pin]]:
        """Takes in what the end of a start says about its image, the last one in the list; however it ends."""
        pins = [pin]
        try:
            yield pins
        except Problem as problem:
            self._judge(sandbox, pins[-1], problem.code, problem.detail)
            raise
        finally:
            # One that has ended elsewhere is cancelled here.
            if over.done() and not over.cancelled() and over.exception() is None and (end := over.result().end):
                self._judge(sandbox, pins[-1], end.cause, end.detail)

    def _judge(self, sandbox: Sandbox, pin: Pin, code: Code, why: str) -> None:
        placement = self._cluster.placement(sandbox.id)
        never_ready = code == _NEVER_READY and placement is not None and bool(placement.node)
        if code in _OF_IMAGES or never_ready:
            self._lazily.broke(sandbox.owner, pin, why)
