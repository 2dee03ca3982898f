"""``Copies``: images on their way into the private registry, each once for all starts that wait for it."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Copied, Copying, Credentials, Form, Mirror, PrivateRegistry, Recorded, Reference
from controlplane.lifecycle.images.flight import Flight, Flights
from controlplane.lifecycle.images.registry_store import RegistryStore
from controlplane.registry import MirrorAwayError
from controlplane.telemetry import Metrics

# How long a copy that was there is taken to be there; what is removed is never what was asked for lately.
THERE_MS: Final = 60_000
MOST_THERE: Final = 32_768
# Between two calls to a mirror that does not answer.
RETRY_S: Final = (0.5, 1.0, 2.0, 5.0)
# So often a copy that was there may be removed before its use is noted.
MOST_COPIES: Final = 3
# Of nodes that are not known yet.
_UNKNOWN: Final = ("amd64",)

# Name with digest, the tag that the mirror is told, architectures, form, and what makes it a recorded copy: equal ones
# wait for one copy.
_Key = tuple[str, str, tuple[str, ...], Form, Recorded | None]
# Starts with other credentials wait for an answer of their own: these may have expired. The mirror copies once.
_Flight = tuple[_Key, Credentials | None]


class Copy(Flight[str]):
    """One copy, as those who wait for it see it.

    Attributes:
        progress: how far it is.
        trouble: why the mirror was away last; None: it answers.
        architectures: those that it has, once it is there; none: not told.
    """

    def __init__(self, source: Reference, form: Form = "plain") -> None:
        super().__init__()
        self.source = source
        self.form = form
        self.progress = Copying("waiting")
        self.trouble: Problem | None = None
        self.architectures: tuple[str, ...] = ()
        self.waiting = 0

    async def digest(self) -> str:
        """Waits until it is over; the digest that nodes pull.

        Raises:
            Problem: why there is none; also where this control plane stops.
        """
        await asyncio.wait({self.over})
        return self.answer()

    def overdue(self) -> Problem:
        """The error of a start whose deadline has passed while it waited for this copy."""
        if self.trouble is not None:
            return Problem(self.trouble.code, f"{self.source} was not copied in time: {self.trouble.detail}")
        return Problem("start_timeout", f"{self.source} was not copied into the registry in time: {self.progress}")


class Copies:
    """Has images copied.

    Args:
        mirror: copies them.
        private: where to.
        architectures: of the machines.
        clock: the time of day.
        metrics: counts what became of copies.
        store: knows whether there is room, and is told of copies that are used.
        group: owns the copies, which several starts may wait for.
    """

    def __init__(
        self,
        mirror: Mirror,
        private: PrivateRegistry,
        architectures: Callable[[], Collection[str]],
        *,
        clock: Clock,
        metrics: Metrics,
        store: RegistryStore,
        group: asyncio.TaskGroup,
    ) -> None:
        self._mirror = mirror
        self._store = store
        self._private = private
        self._architectures = architectures
        self._clock = clock
        self._metrics = metrics
        self._flights: Flights[_Flight, Copy] = Flights(group, MirrorAwayError("this control plane is stopping"))
        self._there: OrderedDict[_Key, tuple[str, int]] = OrderedDict()
        self._log = structlog.get_logger("images")

    def close(self) -> None:
        """Breaks off all copies; what was sent stays, and the next control plane goes on."""
        self._flights.close()

    def there(self, source: Reference) -> str:
        """The digest of a copy that was there a moment ago; empty: not known."""
        digest, until_ms = self._there.get(self._key(source), ("", 0))
        return digest if self._clock.now_ms() < until_ms else ""

    @asynccontextmanager
    async def joined(
        self,
        source: Reference,
        credentials: Credentials | None,
        form: Form = "plain",
        recorded: Recorded | None = None,
    ) -> AsyncIterator[Copy]:
        """A copy of an image, begun unless it is under way; it ends when the last one that waits for it leaves.

        Args:
            source: with a digest; whoever asks has the right to it.
            credentials: for its registry.
            form: of the copy.
            recorded: makes a converted copy a recorded one.
        """
        flight = (self._key(source, form, recorded), credentials)
        copy = self._flights.get(flight)
        if copy is None:
            copy = Copy(source, form)
            self._flights.begin(flight, copy, self._copied(flight, copy), f"copy {source}")
        copy.waiting += 1
        try:
            yield copy
        finally:
            copy.waiting -= 1
            if not copy.waiting:
                self._flights.leave(flight, copy)

    async def _copied(self, flight: _Flight, copy: Copy) -> str | Problem:
        key, credentials = flight
        attempt = 0
        while True:
            try:
                done = await self._copy_once(key, copy, credentials)
            except MirrorAwayError as away:
                if copy.trouble is None:
                    self._log.warning("mirror does not answer, starts wait for it", detail=away.detail)
                    self._metrics.image_copied("away")
                copy.trouble = away
                await asyncio.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])
                attempt += 1
                continue
            except Problem as problem:
                return await self._failed(problem)
            except Exception:
                # Raised, it would end all that shares the group with it: the whole control plane.
                self._log.exception("copy failed", image=str(copy.source))
                self._metrics.image_copied("failed")
                return Problem("internal", f"the copy of {copy.source} failed in the control plane")
            self._keep(key, done.digest)
            copy.architectures = done.architectures
            self._metrics.image_copied("there" if done.there else "copied")
            return done.digest

    async def _failed(self, problem: Problem) -> Problem:
        if problem.details.get("side") == "registry" and await self._store.full(now=True):
            # A registry without room fails in many words.
            retry_after_ms = problem.retry_after_ms
            problem = Problem("image_store_full", problem.detail, retry_after_ms=retry_after_ms, **problem.details)
        if problem.code == "image_store_full":
            self._store.found_full()
            self._metrics.image_copied("full")
        else:
            self._metrics.image_copied("refused" if problem.entry.fault == "caller" else "failed")
        return problem

    async def _copy_once(self, key: _Key, copy: Copy, credentials: Credentials | None) -> Copied:
        plain, repository = (self._private.repository(copy.source, form) for form in ("plain", copy.form))
        through = "" if copy.form == "plain" else plain
        for _ in range(MOST_COPIES):
            no_room = await self._store.full()
            done = await self._copied_into(repository, key, copy, credentials, through=through, no_room=no_room)
            # It may be removed just now: from its use on it stays.
            if await self._store.use(repository, done.digest):
                return done
        raise Problem("image_pull_failed", f"{copy.source} was removed from the private registry as often as copied")

    async def _copied_into(
        self,
        repository: str,
        key: _Key,
        copy: Copy,
        credentials: Credentials | None,
        *,
        through: str,
        no_room: bool,
    ) -> Copied:
        source, architectures = copy.source, key[2]
        told_all = self._mirror.copy(
            source, credentials, repository, architectures, through=through, no_room=no_room, recorded=key[4]
        )
        async for told in told_all:
            if isinstance(told, Copied):
                return told
            copy.progress, copy.trouble = told, None
        raise MirrorAwayError("it ended a copy without a word")

    async def use(self, source: Reference, digest: str) -> bool:
        """Notes that the plain copy of an image, which has this digest, is used; whether it is there."""
        return await self._store.use(self._private.repository(source), digest)

    def architectures(self) -> tuple[str, ...]:
        """Those of the machines for which images are copied."""
        return tuple(sorted(self._architectures() or _UNKNOWN))

    def _key(self, source: Reference, form: Form = "plain", recorded: Recorded | None = None) -> _Key:
        return f"{source.name}@{source.digest}", source.tag, self.architectures(), form, recorded

    def _keep(self, key: _Key, digest: str) -> None:
        name, tag, architectures, form, recorded = key
        if recorded is not None:
            return  # nobody asks whether one is there
        # With its tag it is there for those too who name none.
        for one in {tag, ""}:
            there: _Key = (name, one, architectures, form, None)
            self._there[there] = (digest, self._clock.now_ms() + THERE_MS)
            self._there.move_to_end(there)
            if len(self._there) > MOST_THERE:
                self._there.popitem(last=False)
