"""``Conversions``: images that are converted, one after the other, behind the starts that would have used them."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Converted, Mirror, PrivateRegistry, Reference
from controlplane.lifecycle.images.conversion_queue import Conversion, ConversionQueue, key_of
from controlplane.lifecycle.images.copies import Copies
from controlplane.lifecycle.images.forms import Known
from controlplane.telemetry import Metrics

# Of one image, with the sandbox that is started from it.
WITHIN_S: Final = 3_600.0
# How long an answer of the mirror holds.
KNOWN_MS: Final = 60_000
# How long it is not tried again: what the image is at fault for, and all else, which doubles with each failure.
REFUSED_MS: Final = 3_600_000
FAILED_MS: Final = 120_000
# So often a command has to fail in sandboxes before nothing is started from a converted copy any more.
TRIALS: Final = 3
MOST_KNOWN: Final = 32_768
# A start waits so long to hear whether there is a converted copy.
ASKED_WITHIN_S: Final = 2.0

# Starts a sandbox from a converted copy, by its name. Returns why a command in it failed; empty: it did not. What says
# nothing about the image is raised as a ``Problem``.
Boot = Callable[[str], Awaitable[str]]


class Conversions:
    """Has images converted, and started from once, before they are offered.

    Args:
        mirror: converts, and keeps what was converted and whether it starts.
        private: where it is kept.
        copies: asks the mirror, once for all who wait.
        clock: the time of day.
        metrics: counts conversions.
    """

    def __init__(
        self, mirror: Mirror, private: PrivateRegistry, copies: Copies, *, clock: Clock, metrics: Metrics
    ) -> None:
        self._mirror = mirror
        self._private = private
        self._copies = copies
        self._clock = clock
        self._metrics = metrics
        self._queue = ConversionQueue()
        self._trials: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._known: OrderedDict[str, tuple[Known, int]] = OrderedDict()
        self._log = structlog.get_logger("images")

    async def known(self, source: Reference) -> Known:
        """What is known of an image's converted copy. Cost: nothing within a minute; else the mirror's."""
        key = key_of(source)
        known, until_ms = self._known.get(key, (None, 0))
        if known is not None and self._clock.now_ms() < until_ms:
            return known
        try:
            async with asyncio.timeout(ASKED_WITHIN_S):
                found = await self._found(source)
        except Problem as problem:
            return Known("unknown", why=problem.detail)
        except TimeoutError:
            return Known("unknown", why=f"the mirror did not answer within {ASKED_WITHIN_S:.0f} s")
        return self._keep(key, _judged(found), KNOWN_MS)

    def awaited(self, source: Reference, *, again: bool = False) -> Conversion:
        """The conversion of an image, begun unless it is under way; somebody waits for it.

        Args:
            source: with a digest; its plain copy is there.
            again: that no sandbox started from it before is no answer.

        Raises:
            Problem: capacity_unavailable: too many are waited for.
        """
        conversion = self._queue.awaited(source)
        conversion.again = conversion.again or again
        return conversion

    def behind(self, source: Reference) -> None:
        """Has an image converted for later starts, unless too many wait."""
        if not self._queue.behind(source):
            self._metrics.image_converted("dropped")

    def broke(self, source: Reference, why: str) -> None:
        """Takes in that a start from the converted copy has failed for its image: the next ones get the plain copy."""
        self._failed(key_of(source), why)

    async def run(self, boot: Boot) -> None:
        """Converts what is wanted, one image at a time, until it is cancelled."""
        try:
            while True:
                await self._convert(await self._queue.take(), boot)
        finally:
            self._queue.close(Problem("draining", "this control plane is stopping", retry_after_ms=1000))

    async def _convert(self, conversion: Conversion, boot: Boot) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                outcome: Converted | Problem = await self._tried(conversion, boot)
        except TimeoutError:
            outcome = Problem("image_pull_failed", f"it was not converted within {WITHIN_S:.0f} s")
        except Problem as problem:
            outcome = problem
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("conversion failed", image=str(conversion.source))
            outcome = Problem("internal", f"the conversion of {conversion.source} failed in the control plane")
        self._settle(conversion, outcome)

    async def _tried(self, conversion: Conversion, boot: Boot) -> Converted:
        source = conversion.source
        # Without credentials: the plain copy is there, and a conversion reads that one.
        async with self._copies.joined(source.untagged(), None, "estargz") as copy:
            conversion.copy = copy
            made = Converted(await copy.digest())
        found = await self._found(source)
        if found is not None and found.digest == made.digest and (found.booted or self._final(conversion, found)):
            return found
        conversion.booting = True
        if why := await boot(self._private.copy(source, made.digest, "estargz")):
            key = f"{key_of(source)} {made.digest}"
            self._trials[key] += 1
            if len(self._trials) > MOST_KNOWN:
                self._trials.clear()
            if self._trials[key] < TRIALS:
                raise Problem("image_pull_failed", f"trial {self._trials[key]} of {TRIALS}: {why}")
            del self._trials[key]
        made = Converted(made.digest, not why, why)
        repository = self._private.repository(source, "estargz")
        await self._mirror.judge(repository, source.digest, self._copies.architectures(), made)
        return made

    def _final(self, conversion: Conversion, found: Converted) -> bool:
        """Whether it is known that no sandbox starts from it, and nobody asks to try again."""
        return found.booted is False and not conversion.again

    def _settle(self, conversion: Conversion, outcome: Converted | Problem) -> None:
        key = key_of(conversion.source)
        if isinstance(outcome, Problem):
            self._metrics.image_converted("refused" if outcome.entry.fault == "caller" else "failed")
            self._log.warning("image not converted", image=str(conversion.source), detail=outcome.detail)
            if outcome.entry.fault == "caller":
                self._keep(key, Known("failed", why=outcome.detail, refused=True), REFUSED_MS)
            else:
                self._failed(key, outcome.detail)
        else:
            self._metrics.image_converted("offered" if outcome.booted else "not_started")
            self._failures.pop(key, None)
            known = self._keep(key, _judged(outcome), KNOWN_MS)
            if not outcome.booted:
                self._log.warning("no sandbox starts from it", image=str(conversion.source), detail=outcome.why)
                outcome = Problem("unsupported", f"pull lazy: {known.why}; pull it auto or full", option="pull")
        if not conversion.over.done():
            conversion.over.set_result(outcome)

    def _failed(self, key: str, why: str) -> None:
        """Nothing that the image is at fault for: starts get the plain copy for a while, longer each time."""
        self._failures[key] += 1
        for_ms = min(REFUSED_MS, FAILED_MS << (self._failures[key] - 1))
        self._keep(key, Known("failed", why=why), for_ms)

    async def _found(self, source: Reference) -> Converted | None:
        repository = self._private.repository(source, "estargz")
        return await self._mirror.converted(repository, source.digest, self._copies.architectures())

    def _keep(self, key: str, known: Known, for_ms: int) -> Known:
        self._known[key] = (known, self._clock.now_ms() + for_ms)
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            oldest, _ = self._known.popitem(last=False)
            self._failures.pop(oldest, None)
        return known


def _judged(found: Converted | None) -> Known:
    if found is None or found.booted is None:
        return Known("absent")
    if found.booted:
        return Known("offered", found.digest)
    return Known("failed", why=f"no sandbox starts from its converted copy: {found.why}", refused=True)
