"""``Images``: what image a start begins with, so that a group or a pool never mixes two."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol
from weakref import WeakValueDictionary

import structlog

from controlplane.clock import Clock
from controlplane.cluster import ImageState
from controlplane.errors import Problem
from controlplane.images import ImageOptions, Reference, Registry, parse
from controlplane.lifecycle.images.copies import Copy
from controlplane.lifecycle.images.mirrored import Mirrored
from controlplane.lifecycle.images.resolver import Resolver
from controlplane.lifecycle.images.rights import Rights, not_yours
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import GROUP, Pulled, Sandbox, SandboxSpec, State
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
# Of a start whose image is not copied, in its record.
PAST_FULL: Final = "the private registry is full, so its node pulls it from where it is"
_UNCLAIMED: Final = frozenset({State.REQUESTED, State.QUEUED, State.STARTING, State.WARM})

# `group`, owner, its name, image; or `template` and its hash.
_Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """An image to start with.

    Attributes:
        name: as the cluster is given it.
        digest: what it is pinned to; empty: it could not be resolved.
        ran: the digest of the copy that nodes pull in its place; empty: none.
        stale: its registry did not answer: the digest is what the name meant when it was copied.
        resolved: its registry has just said that its tag means this digest.
        source: what was copied, by its own name, or what a converted copy may be made of; empty: nothing.
        pulled, pulled_why: how nodes pull it, and why so; empty: not chosen yet, or nothing is special.
    """

    name: str
    digest: str
    ran: str = ""
    stale: bool = False
    resolved: bool = False
    source: str = ""
    pulled: Pulled = ""
    pulled_why: str = ""


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
        mirrored: the private registry that images are copied into; None: nodes pull them from where they are.
        rights: which owner may have an image; None: all may have all.
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
        mirrored: Mirrored | None = None,
        rights: Rights | None = None,
    ) -> None:
        self._mirrored = mirrored
        self._rights = rights
        self._rewrites = options.rewrites
        self._required = options.digests == "required"
        self._past_full = options.past_full
        self._log = structlog.get_logger("images")
        self._machines = machines
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._serves = serves
        self._resolver = (
            None
            if registry is None or options.digests == "never"
            else Resolver(registry, clock, machines.architectures, group, wait_for_answer=self._required)
        )
        self._pins: OrderedDict[_Scope, tuple[str, int | None]] = OrderedDict()
        self._unpinned_until_ms: OrderedDict[_Scope, int] = OrderedDict()
        self._locks: WeakValueDictionary[_Scope, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """Breaks off what is asked."""
        if self._resolver is not None:
            self._resolver.close()
        if self._rights is not None:
            self._rights.close()
        if self._mirrored is not None:
            self._mirrored.close()

    async def permit(self, owner: str, name: str) -> None:
        """Checks that an owner may have an image, whatever has it already; for every create, warm or cold.

        Raises:
            Problem: image_not_found: it may not, or there is none; image_pull_failed: its registry does not say.
        """
        if self._mirrored is not None and self._mirrored.hides(parse(name)):
            raise not_yours(parse(name))
        if self._rights is not None:
            await self._rights.check(owner, parse(self.pulled(name)))

    @asynccontextmanager
    async def copying(self, sandbox: Sandbox, pin: Pin) -> AsyncIterator[Copy | None]:
        """The copy that a start has to wait for, which goes on while somebody waits for it; None: there is none."""
        if self._mirrored is None or pin.ran or not self._mirrored.wants(pin.name):
            yield None
            return
        async with self._mirrored.copying(pin.name, sandbox.owner, resolved=pin.resolved) as copy:
            yield copy

    async def uncopied(self, sandbox: Sandbox, pin: Pin, full: Problem) -> Pin:
        """What nodes pull in place of a copy for which the private registry has no room: the image, from where it is.

        Only where all owners may have it: nodes have no credentials of one owner alone, and give what they have to all.

        Args:
            sandbox: asks for it.
            pin: names it, by its digest.
            full: why there is no copy.

        Raises:
            Problem: ``full``: nodes do not pull it from there.
        """
        reference = parse(pin.name)
        guarded = self._rights is None or await self._rights.guarded(reference)
        if guarded or not self._past_full or sandbox.spec.pull == "lazy":
            self._metrics.registry_full_start("failed")
            raise full
        self._metrics.registry_full_start("upstream")
        self._log.warning("no room for a copy, nodes pull the image from where it is", image=pin.name)
        return replace(pin, pulled="full", pulled_why=PAST_FULL)

    def copied(self, pin: Pin, digest: str = "") -> Pin:
        """What nodes pull: the copy with this digest, or one that was there a moment ago; else the pin as it is."""
        if self._mirrored is None:
            return pin
        if self._mirrored.converts(pin.name):
            pin = replace(pin, source=pin.name)
        elif not self._mirrored.wants(pin.name):
            return pin
        digest = digest or pin.ran or self._mirrored.ready(pin.name, resolved=pin.resolved)
        if not digest:
            return pin
        name = self._mirrored.copy_of(pin.name, digest, "estargz" if pin.pulled == "lazy" else "plain")
        return replace(pin, name=name, ran=digest, source=pin.name)

    def layers(self, pin: Pin) -> Mapping[str, int]:
        """The layers that nodes pull of it, with their bytes; empty: not known, as of a converted copy."""
        if self._resolver is None or (pin.ran and pin.pulled == "lazy"):
            return {}
        return self._resolver.layers(pin.digest)

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
            # A start that another replica has begun: the right was proven then, and what runs is on record.
            ran = sandbox.image_ran if self._mirrored is not None else ""
            how, why = sandbox.image_pulled, sandbox.image_pulled_why
            return replace(_pinned(name, sandbox.image_digest), ran=ran, pulled=how, pulled_why=why)
        await self._allow(sandbox, parse(name))
        pin = await self._scoped(self._resolver, sandbox, name)
        if pin.digest:
            await self._allow(sandbox, parse(name).at(pin.digest))
        return pin

    async def _allow(self, sandbox: Sandbox, reference: Reference) -> None:
        if self._rights is not None:
            await self._rights.check(sandbox.owner, reference)

    async def _scoped(self, resolver: Resolver, sandbox: Sandbox, name: str) -> Pin:
        scopes = self._scopes(sandbox)
        # Converted copies are of digests: without one, a start that asks for nothing else has to fail.
        patient = sandbox.spec.pull == "lazy"
        if not scopes:
            return await self._resolved(resolver, sandbox.owner, name, patient=patient)
        lock = self._locks.setdefault(scopes[0], asyncio.Lock())
        async with lock:
            for position, scope in enumerate(scopes, start=1):
                if digest := self._remembered(scope) or await self._on_record(scope, sandbox):
                    self._remember(scopes[:position], digest)
                    self._metrics.image_pinned("pinned")
                    return _pinned(name, digest)
            pin = await self._resolved(resolver, sandbox.owner, name, patient=patient)
            self._remember(scopes, pin.digest)
            if not pin.digest:
                self._remember_unpinned(scopes)
        return pin

    async def resolved(self, owner: str, name: str) -> Pin:
        """What a name means now for an owner; nothing is copied.

        Raises:
            Problem: as ``permit`` and ``pin``.
        """
        await self.permit(owner, name)
        name = self.pulled(name)
        if self._resolver is None:
            return Pin(name, parse(name).digest)
        return await self._resolved(self._resolver, owner, name)

    async def named(self, owner: str, name: str) -> Pin:
        """What an owner's sandbox of no group and no pool would be started with now, copied where it has to be.

        Raises:
            Problem: as ``permit`` and ``pin``; image_pull_failed: it cannot be copied.
        """
        pin = await self.resolved(owner, name)
        if self._resolver is None:
            return pin
        if (there := self.copied(pin)).ran or self._mirrored is None or not self._mirrored.wants(pin.name):
            return there
        async with self._mirrored.copying(pin.name, owner, resolved=pin.resolved) as copy:
            return self.copied(pin, await copy.digest())

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

    async def find(self, owner: str, name: str) -> ImageState:
        """Whether the image that a name means now is on the machines, or in its registry, as an owner is told.

        Raises:
            Problem: image_not_found, unsupported: no sandbox can start from it.
        """
        if self._resolver is None:
            return "unknown"
        try:
            reference = parse(self.pulled(name))
            digest = await self._resolver.resolve(reference, await self.whose(owner, reference))
        except RegistryProblem as problem:
            # Machines may have credentials that the control plane has not.
            if problem.outcome == "absent" or (problem.outcome == "denied" and self._required):
                raise
            return "unknown"
        # A machine that has pulled it by its digest does not know its tag.
        here = await self._machines.image(str(reference.at(digest))) == "here"
        return "here" if here else "elsewhere"

    async def whose(self, owner: str, reference: Reference) -> str:
        """The owner for whom a registry is asked; empty: all are told the same."""
        return owner if self._rights is not None and await self._rights.guarded(reference) else ""

    async def _resolved(self, resolver: Resolver, owner: str, name: str, *, patient: bool = False) -> Pin:
        reference = parse(name)
        if self._mirrored is not None and self._mirrored.holds(reference):
            return _pinned(name, await self._mirrored.committed(reference))
        if digest := await self._machines.digest(name):
            self._metrics.image_pinned("here")
            return _pinned(name, reference.digest or digest)
        whose = await self.whose(owner, reference)
        try:
            digest = await resolver.resolve(reference, whose, patient=patient)
        except RegistryProblem as problem:
            if (stale := await self._stale(reference, problem)) is not None:
                self._metrics.image_pinned("stale")
                return stale
            # A digest needs no registry to be one.
            self._metrics.image_pinned("pinned" if reference.digest else problem.outcome)
            # By its name alone a node would start what it has, whosever it is.
            if (self._required or whose) and not reference.digest:
                raise
            return Pin(name, reference.digest)
        self._metrics.image_pinned("registry")
        return replace(_pinned(name, digest), resolved=not reference.digest)

    async def _stale(self, reference: Reference, problem: RegistryProblem) -> Pin | None:
        """What a name meant when it was copied last, while its registry does not say what it means now."""
        if self._mirrored is None or reference.digest or problem.outcome not in ("away", "limited", "broken"):
            return None
        found = await self._mirrored.last(reference)
        return None if found is None else Pin(str(reference.at(found.named)), found.named, found.digest, stale=True)

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
