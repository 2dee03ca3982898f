"""``Images``: what image a start begins with, so that a group or a pool never mixes two."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from controlplane.clock import Clock
from controlplane.cluster import ImageState
from controlplane.images import ImageOptions, Reference, Registry, parse
from controlplane.lifecycle.images.resolver import Resolver
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import GROUP, Sandbox, SandboxSpec, State
from controlplane.registry import RegistryProblem
from controlplane.telemetry import Metrics

# How long a replica remembers the digest of a pool; then it looks at the records again. A pool with no unclaimed
# sandbox left may get another one. A group's never changes.
POOL_MS: Final = 60_000
# While no registry says a digest, the records of a group or a pool are searched so often for one that another replica
# has found. A search reads all of them: one for each start would cost the square of a pool's size.
UNPINNED_MS: Final = 5_000
# About 0.5 KiB each.
MOST_PINS: Final = 32_768
_UNCLAIMED: Final = frozenset({State.REQUESTED, State.QUEUED, State.STARTING, State.WARM})

# `group`, owner, its name, image; or `template` and its hash.
_Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """An image to start with.

    Attributes:
        name: as the cluster is given it.
        digest: what it is pinned to; empty: it could not be resolved.
    """

    name: str
    digest: str


class Machines(Protocol):
    """The part of ``Cluster`` that is asked."""

    async def digest(self, name: str) -> str:
        """The digest of an image that is on the machine."""
        ...

    async def image(self, name: str) -> ImageState:
        """Where an image is."""
        ...

    def architectures(self) -> Collection[str]:
        """Those of the machines."""
        ...


class Images:
    """Chooses the image of each start.

    Args:
        options: how images are resolved.
        registry: asks registries; None: none is asked, names are only rewritten.
        machines: has images already.
        store: the records, in which groups and pools have their digests.
        clock: the time of day.
        metrics: counts what became of names.
        serves: whether a pool keeps a template warm.
        group: owns what is asked in the background.
    """

    def __init__(
        self,
        options: ImageOptions,
        registry: Registry | None,
        machines: Machines,
        store: RecoveringStore,
        clock: Clock,
        *,
        metrics: Metrics,
        serves: Callable[[SandboxSpec], bool],
        group: asyncio.TaskGroup,
    ) -> None:
        self._rewrites = options.rewrites
        self._required = options.digests == "required"
        self._machines = machines
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._serves = serves
        self._resolver = (
            None
            if registry is None or options.digests == "never"
            else Resolver(registry, clock, machines.architectures, group, patient=self._required)
        )
        self._pins: OrderedDict[_Scope, tuple[str, int | None]] = OrderedDict()
        self._unpinned_until_ms: OrderedDict[_Scope, int] = OrderedDict()
        self._locks: WeakValueDictionary[_Scope, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """Breaks off what is asked."""
        if self._resolver is not None:
            self._resolver.close()

    def pulled(self, name: str) -> str:
        """The name under which an image is pulled: as the user wrote it where no rule rewrites it."""
        reference = parse(name)
        rewritten = self._rewrites.applied(reference)
        return name if rewritten == reference else str(rewritten)

    async def pin(self, sandbox: Sandbox) -> Pin:
        """The image with which a sandbox is to be started.

        Raises:
            Problem: unsupported: no sandbox can start from it; where digests are required, why there is none.
        Cost: nothing for a group or a pool that was asked for within a minute, or whose image no registry said within
            ``UNPINNED_MS``; else a search of the group's or the pool's records, and see ``Resolver``.
        """
        name = self.pulled(sandbox.spec.image)
        if self._resolver is None:
            return Pin(name, parse(name).digest)
        if sandbox.image_digest:
            return _pinned(name, sandbox.image_digest)
        scopes = self._scopes(sandbox)
        if not scopes:
            return await self._resolved(self._resolver, name)
        lock = self._locks.setdefault(scopes[0], asyncio.Lock())
        async with lock:
            for position, scope in enumerate(scopes, start=1):
                if digest := self._remembered(scope) or await self._on_record(scope, sandbox):
                    self._remember(scopes[:position], digest)
                    self._metrics.image_pinned("pinned")
                    return _pinned(name, digest)
            pin = await self._resolved(self._resolver, name)
            self._remember(scopes, pin.digest)
            if not pin.digest:
                self._remember_unpinned(scopes)
        return pin

    def on(self, transition: Transition) -> None:
        """Takes in which image a group or a pool has, from whatever replica has started its first sandbox.

        Cost: 5 us.
        """
        sandbox = transition.after
        if not sandbox.image_digest or sandbox.end is not None:
            return
        if (scope := _group(sandbox)) is not None and scope not in self._pins:
            self._remember([scope], sandbox.image_digest)
        # One that was claimed long ago may be of another generation than those that its pool has now.
        if sandbox.pool and (sandbox.unclaimed or self._clock.now_ms() - (sandbox.claimed_at_ms or 0) < POOL_MS):
            self._remember([_template(sandbox)], sandbox.image_digest)

    def agrees(self, claimed: Sandbox) -> bool:
        """Whether a claimed sandbox has its group's digest, as far as this replica knows that. Cost: no call."""
        scope = _group(claimed) if claimed.image_digest else None
        return scope is None or self._remembered(scope) in ("", claimed.image_digest)

    async def find(self, name: str) -> ImageState:
        """Whether the image that a name means now is on the machines, or in its registry.

        Raises:
            Problem: image_not_found, unsupported: no sandbox can start from it.
        """
        if self._resolver is None:
            return "unknown"
        try:
            reference = parse(self.pulled(name))
            digest = await self._resolver.resolve(reference)
        except RegistryProblem as problem:
            # Machines may have credentials that the control plane has not.
            if problem.outcome == "absent" or (problem.outcome == "denied" and self._required):
                raise
            return "unknown"
        # A machine that has pulled it by its digest does not know its tag.
        here = await self._machines.image(str(reference.at(digest))) == "here"
        return "here" if here else "elsewhere"

    async def _resolved(self, resolver: Resolver, name: str) -> Pin:
        reference = parse(name)
        if digest := await self._machines.digest(name):
            self._metrics.image_pinned("here")
            return _pinned(name, reference.digest or digest)
        try:
            digest = await resolver.resolve(reference)
        except RegistryProblem as problem:
            # A digest needs no registry to be one.
            self._metrics.image_pinned("pinned" if reference.digest else problem.outcome)
            if self._required and not reference.digest:
                raise
            return Pin(name, reference.digest)
        self._metrics.image_pinned("registry")
        return _pinned(name, digest)

    def _scopes(self, sandbox: Sandbox) -> Sequence[_Scope]:
        """What shares its digest, the closest first. A digest that the user has named needs nobody to agree."""
        if parse(sandbox.spec.image).digest:
            return ()
        group = _group(sandbox)
        pooled = sandbox.pool or self._serves(sandbox.spec)
        return (*(() if group is None else (group,)), *((_template(sandbox),) if pooled else ()))

    def _remembered(self, scope: _Scope) -> str:
        digest, until_ms = self._pins.get(scope, ("", None))
        return digest if until_ms is None or self._clock.now_ms() < until_ms else ""

    def _remember(self, scopes: Sequence[_Scope], digest: str) -> None:
        for scope in scopes if digest else ():
            if not self._remembered(scope):
                self._pins[scope] = (digest, None if scope[0] == "group" else self._clock.now_ms() + POOL_MS)
                self._pins.move_to_end(scope)
            if len(self._pins) > MOST_PINS:
                self._pins.popitem(last=False)

    def _remember_unpinned(self, scopes: Sequence[_Scope]) -> None:
        for scope in scopes:
            if self._unpinned_until_ms.get(scope, 0) <= self._clock.now_ms():
                self._unpinned_until_ms[scope] = self._clock.now_ms() + UNPINNED_MS
            if len(self._unpinned_until_ms) > MOST_PINS:
                self._unpinned_until_ms.popitem(last=False)

    async def _on_record(self, scope: _Scope, sandbox: Sandbox) -> str:
        """The digest of the group's oldest member that has one, or of the oldest unclaimed sandbox of the template."""
        if self._clock.now_ms() < self._unpinned_until_ms.get(scope, 0):
            return ""
        spec = sandbox.spec
        if scope[0] == "group":
            members = await self._store.find(sandbox.owner, {GROUP: spec.labels[GROUP]}, None)
            same = (one for one in members if one.spec.image == spec.image)
        else:
            unclaimed = await self._store.find(None, {}, _UNCLAIMED)
            same = (one for one in unclaimed if one.spec.template_hash() == spec.template_hash())
        return next((one.image_digest for one in same if one.image_digest), "")


def _template(sandbox: Sandbox) -> _Scope:
    return ("template", sandbox.spec.template_hash())


def _group(sandbox: Sandbox) -> _Scope | None:
    name = sandbox.spec.labels.get(GROUP)
    return ("group", sandbox.owner, name, sandbox.spec.image) if name else None


def _pinned(name: str, digest: str) -> Pin:
    reference: Reference = parse(name)
    return Pin(name if reference.digest == digest else str(reference.at(digest)), digest)
