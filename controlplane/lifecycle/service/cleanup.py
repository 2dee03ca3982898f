"""``NodeCleanup``: keeps what sandboxes' images take on each node within its budget.

Only what came to a node for sandboxes alone is looked at; the rest is the kubelet's, as before. The plan is
``images.budget``'s: this names what is needed, has the node's agent remove the rest, and says what was removed and why.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Cluster, NodeImage, NodeStore
from controlplane.cluster.documents import Documents
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, Reference, Removal, StoredImage, StoreLimit, parse, plan_removal
from controlplane.lifecycle.pools.declared import declared
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.service.owner_calls import LIVE
from controlplane.telemetry import Metrics

LOOK_EVERY_S: Final = 120.0
# A look begins after such a time: replicas of several releases on the same nodes do not ask at the same moment, and one
# that has just started has taken in what runs.
WAIT_S: Final = (10.0, 20.0)
# Nodes that remove images at the same time; each removes one after the other.
NODES_AT_ONCE: Final = 16
# Of one node in one look: the next look plans anew.
MOST_REMOVED: Final = 256
# After so many removals it is read again what is needed: a sandbox has its record before its pod, and its pod before
# the kubelet looks whether the image is there.
READ_AGAIN_AFTER: Final = 4
# Stands for the tag of what a node has by its digest alone.
_BY_DIGEST: Final = ""
# The image's own digest, and that of the copy that has run.
_WITH_COPY: Final = 2


class Names(Protocol):
    """The part of ``Images`` that is asked."""

    def pulled(self, name: str) -> str:
        """The name under which an image is pulled."""
        ...


class Needed:
    """The images that sandboxes and pools need: their digests, and the names of those whose digest is not known.

    A node knows what was pulled by a digest by no tag. So where only a tag is known, all that the node has of its
    repository without a tag may be meant, also as copies in the private registry.

    Args:
        private: the private registry; None: there is none.
    """

    def __init__(self, private: PrivateRegistry | None = None) -> None:
        self._private = private
        self._digests: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}

    def add(self, why: str, name: str, digests: Iterable[str] = ()) -> None:
        """Adds what needs an image.

        Args:
            why: what, for people.
            name: of the image, as it is pulled.
            digests: by which a node may have it, those of its copies among them; empty ones are left out.
        """
        known = [one for one in digests if one]
        reference = parse(name)
        if reference.digest:
            known.append(reference.digest)
        for one in known:
            self._digests.setdefault(one, why)
        if not known:
            self._names.setdefault((reference.name, reference.tag), why)
            self._names.setdefault((reference.name, _BY_DIGEST), why)
        # A copy has a digest of its own, which is known only of one that has run.
        if self._private is not None and not self._private.holds(reference) and len(known) < _WITH_COPY:
            copies = f"{self._private.host}/{self._private.repository(reference)}"
            self._names.setdefault((copies, _BY_DIGEST), why)

    def why(self, image: NodeImage) -> Sequence[str]:
        """What needs an image of a node; one reason is enough."""
        references = [one for one in map(_read, image.names) if one is not None]
        digests = {image.digest, *(one.digest for one in references)}
        found = [self._digests[one] for one in digests if one in self._digests]
        # One that has a tag is meant by that alone.
        for one in [tagged for tagged in references if tagged.tag] or references:
            key = (one.name, one.tag or _BY_DIGEST)
            found += [self._names[key]] if key in self._names else []
        return found[:1] or ([f"{image.containers} containers"] if image.containers else [])


class NodeCleanup:
    """The clean-up of all nodes; ``turn`` is one look, at one replica at a time.

    Args:
        cluster: has the nodes.
        store: has the sandboxes.
        documents: has the pools.
        names: says under which name an image is pulled.
        private: the private registry, in which nodes have images by other names; None: there is none.
        limit: of each node.
        clock: the time of day.
        metrics: counts bytes and removals.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: RecoveringStore,
        documents: Documents,
        names: Names,
        limit: StoreLimit,
        *,
        private: PrivateRegistry | None,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._documents = documents
        self._names = names
        self._limit = limit
        self._private = private
        self._clock = clock
        self._metrics = metrics
        self._log = structlog.get_logger("images")

    async def turn(self) -> None:
        """Looks at all nodes, and removes what is too much.

        Raises:
            Problem: what is needed cannot be read, so nothing is removed.
        """
        await asyncio.sleep(random.uniform(*WAIT_S))  # noqa: S311 - no secret
        stores = await self._cluster.node_stores()
        # After the nodes were asked: what is needed by then is not removed, whenever it came.
        needed = await self._needed()
        turns = asyncio.Semaphore(NODES_AT_ONCE)

        async def clean(one: NodeStore) -> None:
            async with turns:
                await self._clean(one, needed)

        await asyncio.gather(*(clean(one) for one in stores))
        self._tell(stores)

    async def _needed(self) -> Needed:
        needed = Needed(self._private)
        pooled: defaultdict[str, set[str]] = defaultdict(set)
        for sandbox in await self._store.find(None, {}, LIVE):
            digests = (sandbox.image_digest, sandbox.image_ran)
            needed.add(f"sandbox {sandbox.id}", self._names.pulled(sandbox.spec.image), digests)
            if sandbox.pool:
                pooled[sandbox.pool].update(digests)
        for pool in map(declared, await self._documents.list("pools")):
            if pool.spec is not None:
                needed.add(f"pool {pool.name}", self._names.pulled(pool.spec.template.image), pooled[pool.name])
        return needed

    async def _clean(self, store: NodeStore, needed: Needed) -> None:
        budget = self._limit.budget(store.disk_bytes)
        if budget is None:
            return
        ours = {one.names[0]: one for one in store.images if one.brought_ms is not None and one.names}
        entries = [_entry(name, one, needed) for name, one in ours.items()]
        plan = plan_removal(entries, budget, self._clock.now_ms())
        if plan.removals:
            about = {"bytes": plan.total_bytes, "limit_bytes": budget.limit_bytes, "needed_bytes": plan.needed_bytes}
            self._log.info("a node has more images than it may", node=store.node, images=len(ours), **about)
        for position, one in enumerate(plan.removals[:MOST_REMOVED]):
            if position % READ_AGAIN_AFTER == 0:
                needed = await self._needed()
            if needed.why(ours[one.digest]):
                self._metrics.image_removed("node", "in_use")
            else:
                await self._remove(ours[one.digest], one, budget.limit_bytes)

    async def _remove(self, image: NodeImage, removal: Removal, limit_bytes: int) -> None:
        about = {"node": image.node, "image": removal.digest, "bytes": removal.freed_bytes}
        try:
            there = await self._cluster.remove_image(image)
        except Problem as problem:
            used = problem.code == "conflict"
            self._metrics.image_removed("node", "in_use" if used else "failed")
            self._log.warning("image not removed", **about, code=problem.code, detail=problem.detail)
            return
        self._metrics.image_removed("node", "removed" if there else "gone")
        idle_ms = self._clock.now_ms() - _used_ms(image)
        why = f"more than {limit_bytes} bytes of images for sandboxes, not used for {idle_ms // 1000} s"
        self._log.info("image removed", **about, there=there, why=why)

    def _tell(self, stores: Sequence[NodeStore]) -> None:
        ours = [image for one in stores for image in one.images if image.brought_ms is not None]
        budgets = [self._limit.budget(one.disk_bytes) for one in stores]
        limit_bytes = sum(one.limit_bytes for one in budgets if one is not None)
        self._metrics.image_store("node", sum(one.size_bytes for one in ours), limit_bytes)


def _entry(name: str, image: NodeImage, needed: Needed) -> StoredImage:
    # Which layers images of a node share is not known: each counts with all of its own.
    parts: Mapping[str, int] = {name: image.size_bytes}
    return StoredImage(name, parts, _used_ms(image), needed.why(image))


def _used_ms(image: NodeImage) -> int:
    return max(image.last_used_ms or 0, image.brought_ms or 0)


def _read(name: str) -> Reference | None:
    try:
        return parse(name)
    except ValueError:
        return None
