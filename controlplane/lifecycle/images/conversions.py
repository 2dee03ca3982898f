"""``Conversions``: images that are converted behind the starts that would have used them, then started from once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Converted, Mirror, PrivateRegistry, Recorded, Reference, whose
from controlplane.lifecycle.images.conversion_order import MOST_WAITING
from controlplane.lifecycle.images.conversion_queue import Conversion, ConversionQueue, key_of
from controlplane.lifecycle.images.copies import Copies, Copy
from controlplane.lifecycle.images.form_choice import Known
from controlplane.lifecycle.images.recorded_share import RecordedShare
from controlplane.lifecycle.images.registry_store import RegistryStore
from controlplane.lifecycle.images.verdicts import TRIALS, Verdicts
from controlplane.telemetry import Metrics

# A conversion takes as long as it takes. One that does not go on for so long is broken off; what it has finished stays.
STALLED_S: Final = 900.0
LOOK_EVERY_S: Final = 5.0
# Sandboxes that are started from converted copies at the same time, and how long one of them may take.
TRIALS_AT_ONCE: Final = 4
TRIED_WITHIN_S: Final = 900.0
# A start waits so long to hear whether there is a converted copy.
ASKED_WITHIN_S: Final = 2.0

# Starts a sandbox from a converted copy, by its name, on a machine of an architecture (empty: of any). Returns why a
# command in it failed; empty: it did not. What says nothing about the image is raised as a ``Problem``.
Boot = Callable[[str, str], Awaitable[str]]


class Conversions:
    """Has images converted, and started from once, before they are offered.

    One is converted at a time; a sandbox that is slow to start from one holds up no conversion.

    Args:
        mirror: converts, and keeps what was converted and whether it starts.
        private: where it is kept.
        copies: asks the mirror, once for all who wait.
        store: is told of copies that are used.
        share: what the recorded copies of an owner may take.
        clock: the time of day.
        metrics: counts conversions.
    """

    def __init__(
        self,
        mirror: Mirror,
        private: PrivateRegistry,
        copies: Copies,
        *,
        store: RegistryStore,
        share: RecordedShare,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._share = share
        self._mirror = mirror
        self._private = private
        self._copies = copies
        self._metrics = metrics
        self._verdicts = Verdicts(clock)
        self._under_way: dict[str, Conversion] = {}
        self._making, self._trying = ConversionQueue(), ConversionQueue()
        self._log = structlog.get_logger("images")

    async def known(self, source: Reference, owner: str = "") -> Known:
        """What is known of an image's converted copy. Cost: nothing within a minute; else the mirror's.

        Args:
            source: the image.
            owner: of his recorded copy; empty: of the copy of all owners.
        """
        own = whose(owner) if owner else ""
        key = key_of(source, own)
        if (known := self._verdicts.known(key)) is not None:
            return known
        try:
            async with asyncio.timeout(ASKED_WITHIN_S):
                found = await self._used(source, await self._found(source, own))
        except Problem as problem:
            return Known("unknown", why=problem.detail)
        except TimeoutError:
            return Known("unknown", why=f"the mirror did not answer within {ASKED_WITHIN_S:.0f} s")
        return self._verdicts.found(key, found)

    def awaited(self, source: Reference, owner: str, *, again: bool = False) -> Conversion:
        """The conversion of an image, begun unless it is under way; somebody waits for it.

        It may be over at once: where too many are waited for, with capacity_unavailable.

        Args:
            source: with a digest; its plain copy is there.
            owner: who waits.
            again: that no sandbox started from it before is no answer.
        """
        conversion = self._wanted(source, owner, awaited=True)
        conversion.again = conversion.again or again
        return conversion

    async def check_recorded(self, owner: str) -> None:
        """Checks that an owner may have one more recorded copy.

        Raises:
            Problem: quota_exceeded; why nobody knows.
        """
        await self._share.check(owner, whose(owner))

    def recorded(self, source: Reference, owner: str, recorded: Recorded) -> Conversion:
        """The conversion that makes an owner's recorded copy; as ``awaited``."""
        return self._wanted(source, owner, awaited=True, recorded=recorded)

    def behind(self, source: Reference, owner: str) -> None:
        """Has an image converted for later starts of this owner and others, unless too many wait."""
        self._wanted(source, owner, awaited=False)

    def broke(self, source: Reference, owner: str, digest: str, why: str) -> None:
        """Takes in that a start from a converted copy has failed for its image: the next ones do not get it.

        A copy that was offered last neither to the owner nor to all changes nothing: no start here gets it.

        Args:
            source: the image.
            owner: of the sandbox.
            digest: of the copy.
            why: it failed.
        """
        for key in (key_of(source, whose(owner)), key_of(source)):
            if self._verdicts.last(key) == digest:
                self._verdicts.failed(key, why)

    async def run(self, boot: Boot) -> None:
        """Converts what is wanted, and starts from it, until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._steps(self._making, self._make), name="conversions")
                for _ in range(TRIALS_AT_ONCE):
                    group.create_task(self._steps(self._trying, lambda one: self._try(one, boot)), name="image trials")
        finally:
            for one in [*self._under_way.values()]:
                one.end(Problem("draining", "this control plane is stopping", retry_after_ms=1000))

    async def _steps(self, queue: ConversionQueue, step: Callable[[Conversion], Awaitable[None]]) -> None:
        while True:
            conversion = await queue.take()
            try:
                async with self._settling(conversion):
                    await step(conversion)
            finally:
                queue.done(conversion)

    @asynccontextmanager
    async def _settling(self, conversion: Conversion) -> AsyncIterator[None]:
        """What is raised is the outcome of this conversion alone."""
        try:
            yield
        except Problem as problem:
            self._settle(conversion, problem)
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("conversion failed", image=str(conversion.source))
            detail = f"the conversion of {conversion.source} failed in the control plane"
            self._settle(conversion, Problem("internal", detail))

    def _wanted(self, source: Reference, owner: str, *, awaited: bool, recorded: Recorded | None = None) -> Conversion:
        conversion = Conversion(source, owner, awaited=awaited, recorded=recorded)
        if (known := self._under_way.get(conversion.key)) is not None:
            known.awaited = known.awaited or awaited
            if owner not in known.owners:
                known.owners.append(owner)
                for queue in (self._making, self._trying):
                    queue.join(known, owner)
            return known
        self._under_way[conversion.key] = conversion
        self._put(self._making, conversion)
        return conversion

    def _put(self, queue: ConversionQueue, conversion: Conversion) -> None:
        for one in queue.put(conversion):
            del self._under_way[one.key]
            self._metrics.image_converted("dropped")
            one.end(Problem("capacity_unavailable", f"{MOST_WAITING} images wait to be converted already"))

    async def _make(self, conversion: Conversion) -> None:
        source = conversion.source
        if conversion.recorded is not None:
            # Once more: those that were let in with it are made by now.
            await self._share.check(conversion.owners[0], conversion.whose)
        # Without credentials: the plain copy is there, and a conversion reads that one.
        async with self._copies.joined(source.untagged(), None, "estargz", conversion.recorded) as copy:
            conversion.copy = copy
            made = Converted(await _unless_stalled(copy), architectures=copy.architectures)
        found = await self._found(source, conversion.whose)
        if found is not None and found.digest == made.digest and (found.booted or self._final(conversion, found)):
            self._settle(conversion, found)
            return
        conversion.made = made
        self._put(self._trying, conversion)

    async def _try(self, conversion: Conversion, boot: Boot) -> None:
        source, made = conversion.source, conversion.made
        if made is None:
            raise RuntimeError(f"{source} is tried before it is made")
        conversion.booting = True
        try:
            async with asyncio.timeout(TRIED_WITHIN_S):
                why = await self._why_not(self._private.copy(source, made.digest, "estargz"), made, boot)
        except TimeoutError as late:
            raise Problem("image_pull_failed", f"no sandbox started from it within {TRIED_WITHIN_S:.0f} s") from late
        finally:
            conversion.booting = False
        if why and (trial := self._verdicts.trial_failed(conversion.key, made.digest)):
            raise Problem("image_pull_failed", f"trial {trial} of {TRIALS}: {why}")
        made = replace(made, booted=not why, why=why)
        repository = self._private.repository(source, "estargz")
        # A recorded copy from which no sandbox starts takes no other one's place.
        if made.booted or conversion.recorded is None:
            architectures = self._copies.architectures()
            await self._mirror.judge(repository, source.digest, architectures, made, conversion.whose)
        self._settle(conversion, made)

    async def _why_not(self, image: str, made: Converted, boot: Boot) -> str:
        """Why a command failed in a sandbox of the first architecture in which one did; empty: in none."""
        for architecture in _tried(made.architectures, self._copies.architectures()):
            if why := await boot(image, architecture):
                return f"{architecture}: {why}" if architecture else why
        return ""

    def _final(self, conversion: Conversion, found: Converted) -> bool:
        """Whether it is known that no sandbox starts from it, and nobody asks to try again."""
        return found.booted is False and not conversion.again

    def _settle(self, conversion: Conversion, outcome: Converted | Problem) -> None:
        self._under_way.pop(conversion.key, None)
        key = key_of(conversion.source, conversion.whose)
        if isinstance(outcome, Problem):
            refused = outcome.entry.fault == "caller"
            self._metrics.image_converted("refused" if refused else "failed")
            self._log.warning("image not converted", image=str(conversion.source), detail=outcome.detail)
            if conversion.recorded is None:
                (self._verdicts.refused if refused else self._verdicts.failed)(key, outcome.detail)
        else:
            self._metrics.image_converted("offered" if outcome.booted else "not_started")
            if outcome.booted or conversion.recorded is None:
                self._verdicts.tried(key, outcome)
            if not outcome.booted:
                self._log.warning("no sandbox starts from it", image=str(conversion.source), detail=outcome.why)
                why = f"no sandbox starts from its converted copy: {outcome.why}"
                outcome = Problem("unsupported", f"pull lazy: {why}; pull it auto or full", option="pull")
        conversion.end(outcome)

    async def _found(self, source: Reference, own: str) -> Converted | None:
        repository = self._private.repository(source, "estargz")
        return await self._mirror.converted(repository, source.digest, self._copies.architectures(), own)

    async def _used(self, source: Reference, found: Converted | None) -> Converted | None:
        """Notes the use of a copy that is offered; None: it was removed just now."""
        if found is None or not found.booted:
            return found
        there = await self._store.use(self._private.repository(source, "estargz"), found.digest)
        return found if there else None


async def _unless_stalled(copy: Copy) -> str:
    """The digest of what is converted.

    Raises:
        Problem: why there is none; image_pull_failed, if it has not gone on for ``STALLED_S``.
    """
    last, quiet_s = copy.progress, 0.0
    while not await copy.soon(LOOK_EVERY_S):
        quiet_s += LOOK_EVERY_S
        # Another control plane's conversion may have the mirror's only place for as long as it goes on.
        if copy.progress != last or (copy.progress.phase == "waiting" and copy.trouble is None):
            last, quiet_s = copy.progress, 0.0
        elif quiet_s >= STALLED_S:
            why = str(last) if copy.trouble is None else copy.trouble.detail
            raise Problem("image_pull_failed", f"its conversion stands still for {STALLED_S:.0f} s: {why}")
    return await copy.digest()


def _tried(has: Collection[str], machines: Collection[str]) -> Collection[str]:
    """The architectures on which sandboxes are started from a copy; the empty one stands for any machine."""
    if len(machines) < 2:
        return [""]
    return [one for one in machines if one in has] or [""]
