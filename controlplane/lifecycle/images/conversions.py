"""``Conversions``: images that are converted, one after the other, behind the starts that would have used them."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Converted, Mirror, PrivateRegistry, Reference
from controlplane.lifecycle.images.copies import Copies, Copy
from controlplane.lifecycle.images.forms import Known
from controlplane.telemetry import Metrics

# Images that wait; one more is not converted now, and a later start asks again.
MOST_WAITING: Final = 256
# Of one image, with the sandbox that is started from it.
WITHIN_S: Final = 3_600.0
# How long an answer of the mirror holds.
KNOWN_MS: Final = 60_000
# How long it is not tried again: what the image is at fault for, and all else.
REFUSED_MS: Final = 3_600_000
FAILED_MS: Final = 120_000
MOST_KNOWN: Final = 32_768
# A start waits so long to hear whether there is a converted copy.
ASKED_WITHIN_S: Final = 2.0

# Starts a sandbox from a converted copy, by its name. Returns why a command in it failed; empty: it did not. What says
# nothing about the image is raised as a ``Problem``.
Boot = Callable[[str], Awaitable[str]]


class Conversion:
    """An image that is to be converted, as those who wait for it see it.

    Attributes:
        ahead: how many are converted before it, of one that a start waits for.
        copy: how far it is, once it has its turn.
        booting: whether a sandbox is being started from it.
    """

    def __init__(self, source: Reference) -> None:
        self.source = source
        self.ahead = 0
        self.copy: Copy | None = None
        self.booting = False
        self.over: asyncio.Future[Converted | Problem] = asyncio.get_running_loop().create_future()

    async def soon(self, within_s: float) -> bool:
        """Waits a moment; whether it is over."""
        return bool((await asyncio.wait({self.over}, timeout=within_s))[0])

    async def digest(self) -> str:
        """Waits until it is over; the digest of the converted copy, from which a sandbox has started.

        Raises:
            Problem: why there is none.
        """
        await asyncio.wait({self.over})
        answer = self.over.result()
        if isinstance(answer, Problem):
            # A new one for each: an exception collects the tracebacks of all that raise it.
            raise Problem(answer.code, answer.detail, retry_after_ms=answer.retry_after_ms, **answer.details)
        return answer.digest

    def overdue(self) -> Problem:
        """The failure of a start whose deadline has passed while it waited for this."""
        detail = f"pull lazy: {self.source} was not converted in time: {self.progress}"
        if self.copy is not None and self.copy.trouble is not None:
            return Problem(self.copy.trouble.code, f"{detail}: {self.copy.trouble.detail}")
        return Problem("start_timeout", detail)

    @property
    def progress(self) -> str:
        """How far it is, for people."""
        if self.booting:
            return "a sandbox is started from it, to see whether it can"
        if self.copy is not None:
            return str(self.copy.progress)
        return f"waiting, {self.ahead} are converted before it"


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
        self._awaited: OrderedDict[str, Conversion] = OrderedDict()
        self._behind: OrderedDict[str, Conversion] = OrderedDict()
        self._now: Conversion | None = None
        self._more = asyncio.Event()
        self._known: OrderedDict[str, tuple[Known, int]] = OrderedDict()
        self._log = structlog.get_logger("images")

    async def known(self, source: Reference) -> Known:
        """What is known of an image's converted copy. Cost: nothing within a minute; else the mirror's."""
        key = _key(source)
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

    def awaited(self, source: Reference) -> Conversion:
        """The conversion of an image, begun unless it is under way; a start waits for it.

        Args:
            source: with a digest; its plain copy is there.
        """
        key = _key(source)
        if self._now is not None and _key(self._now.source) == key:
            return self._now
        if key not in self._awaited:
            self._awaited[key] = self._behind.pop(key) if key in self._behind else Conversion(source)
        self._queued()
        return self._awaited[key]

    def behind(self, source: Reference) -> None:
        """Has an image converted for later starts, after those that a start waits for, and unless too many wait."""
        key = _key(source)
        if (self._now is not None and _key(self._now.source) == key) or key in self._awaited or key in self._behind:
            return
        if len(self._behind) >= MOST_WAITING:
            self._metrics.image_converted("dropped")
            return
        self._behind[key] = Conversion(source)
        self._queued()

    async def run(self, boot: Boot) -> None:
        """Converts what is wanted, one image at a time, until it is cancelled."""
        try:
            while True:
                await self._more.wait()
                if not (queue := self._awaited or self._behind):
                    self._more.clear()
                    continue
                _, self._now = queue.popitem(last=False)
                self._queued()
                await self._convert(self._now, boot)
                self._now = None
        finally:
            stopping = Problem("draining", "this control plane is stopping", retry_after_ms=1000)
            for one in (*([self._now] if self._now else ()), *self._awaited.values(), *self._behind.values()):
                if not one.over.done():
                    one.over.set_result(stopping)

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
        if found is not None and found.digest == made.digest and found.booted is not None:
            return found
        conversion.booting = True
        why = await boot(self._private.copy(source, made.digest, "estargz"))
        made = Converted(made.digest, not why, why)
        repository = self._private.repository(source, "estargz")
        await self._mirror.judge(repository, source.digest, self._copies.architectures(), made)
        return made

    def _settle(self, conversion: Conversion, outcome: Converted | Problem) -> None:
        key = _key(conversion.source)
        if isinstance(outcome, Problem):
            refused = outcome.entry.fault == "caller"
            self._metrics.image_converted("refused" if refused else "failed")
            self._keep(key, Known("failed", why=outcome.detail), REFUSED_MS if refused else FAILED_MS)
            self._log.warning("image not converted", image=str(conversion.source), detail=outcome.detail)
        else:
            self._metrics.image_converted("offered" if outcome.booted else "not_started")
            self._keep(key, _judged(outcome), KNOWN_MS)
            if not outcome.booted:
                self._log.warning("no sandbox starts from it", image=str(conversion.source), detail=outcome.why)
                outcome = Problem(
                    "unsupported", f"pull lazy: {_judged(outcome).why}; pull it auto or full", option="pull"
                )
        conversion.over.set_result(outcome)

    async def _found(self, source: Reference) -> Converted | None:
        repository = self._private.repository(source, "estargz")
        return await self._mirror.converted(repository, source.digest, self._copies.architectures())

    def _queued(self) -> None:
        for ahead, one in enumerate(self._awaited.values(), start=int(self._now is not None)):
            one.ahead = ahead
        self._more.set()

    def _keep(self, key: str, known: Known, for_ms: int) -> Known:
        self._known[key] = (known, self._clock.now_ms() + for_ms)
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return known


def _key(source: Reference) -> str:
    return f"{source.name}@{source.digest}"


def _judged(found: Converted | None) -> Known:
    if found is None or found.booted is None:
        return Known("absent")
    if found.booted:
        return Known("offered", found.digest)
    return Known("failed", why=f"no sandbox starts from its converted copy: {found.why}")
