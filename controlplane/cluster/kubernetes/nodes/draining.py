"""``Draining``: which nodes are emptied, by the marks that they have; and rollbox's own mark, which operators set."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.drains import Drain, NodeState
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.nodes.drain_marks import (
    ANNOTATION_DRAIN,
    CORDON,
    OWN,
    SPARE_S,
    UNBOUNDED_S,
    Mark,
    own_fields,
    own_value,
)
from controlplane.cluster.kubernetes.nodes.node_room import SILENT, at_most
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node
from controlplane.cluster.kubernetes.nodes.scaling_marks import LEAVING
from controlplane.errors import Problem

# A patch names the version that it is for; kubelets and others write to nodes all the time.
PATCHES: Final = 5
WITHIN_S: Final = 10.0

Patch = Mapping[str, Any]


class Draining:
    """See ``NodeDrains``.

    Args:
        client: of the API server.
        clock: the time of day.
        fleet: which nodes sandboxes may run on.
        on_node: the ids of the sandboxes on a node.
        silent: the nodes whose kubelets are silent.
        cordon_drains: whether a node that is cordoned is emptied, whoever cordoned it.
    """

    def __init__(
        self,
        client: KubernetesClient,
        clock: Clock,
        fleet: Fleet,
        on_node: Callable[[str], Sequence[str]],
        silent: Callable[[], frozenset[str]],
        *,
        cordon_drains: bool = False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._fleet = fleet
        self._on_node = on_node
        self._silent = silent
        self._cordon_drains = cordon_drains
        self._nodes: dict[str, Node] = {}
        self._first_seen: dict[tuple[str, str], int] = {}
        self._drains: dict[str, Drain] = {}
        self._followers: list[_Follower] = []
        self._log = structlog.get_logger("draining")

    # What the watch tells.

    def see(self, node: Node) -> None:
        """Takes in a node that is new or has changed."""
        self._nodes[node.name] = node
        self._settle(node.name, self._drain(node))

    def drop(self, name: str) -> None:
        """Takes in that a node is gone."""
        self._nodes.pop(name, None)
        self._forget(name, ())
        self._settle(name, None)

    def _drain(self, node: Node) -> Drain | None:
        marks = node.marks
        # A cordon of the scaler's is taken back if a sandbox there is claimed: nobody is told of an end.
        cordoned = not node.schedulable and LEAVING not in node.labels
        if self._cordon_drains and cordoned and not any(one.name == OWN for one in marks):
            marks = (*marks, Mark(CORDON, "is cordoned"))
        self._forget(node.name, [one.name for one in marks])
        found = [self._of(node.name, one) for one in marks]
        # The one that leaves the least time; of an operator's and another one with the same time, the operator's.
        return min(found, key=lambda one: one.until_ms, default=None)

    def _of(self, node: str, mark: Mark) -> Drain:
        first_ms = self._first_seen.setdefault((node, mark.name), self._clock.now_ms())
        by, since_ms = mark.by or mark.name, mark.since_ms or first_ms
        if mark.until_ms is not None:
            return Drain(mark.until_ms, since_ms, by, mark.why)
        notice_s = mark.notice_s if mark.notice_s == UNBOUNDED_S else max(0, mark.notice_s - SPARE_S)
        return Drain(first_ms + notice_s * 1000, since_ms, by, mark.why, estimated=True)

    def _forget(self, node: str, marks: Sequence[str]) -> None:
        for key in [key for key in self._first_seen if key[0] == node and key[1] not in marks]:
            del self._first_seen[key]

    def _settle(self, name: str, drain: Drain | None) -> None:
        before = self._drains.get(name)
        if drain == before:
            return
        if drain is None:
            del self._drains[name]
            self._log.info("node is not emptied any more", node=name)
        else:
            self._drains[name] = drain
            self._log.warning("node is emptied", node=name, why=drain.why, by=drain.by, until_ms=drain.until_ms)
        for follower in self._followers:
            follower.tell(name)

    # What the lifecycle asks.

    def nodes(self) -> Sequence[NodeState]:
        """See ``NodeDrains.nodes``."""
        found = [self._nodes[name] for name in sorted(self._nodes)]
        return [self._state(one) for one in found if self._fleet.eligible([one.lasting()])]

    def _state(self, node: Node) -> NodeState:
        silent = node.name in self._silent()
        ready = node.ready == "True" and not silent
        trouble = SILENT if silent and node.ready == "True" else "" if ready else node.why_not_ready
        drain = self._drains.get(node.name)
        return NodeState(node.name, ready, not node.schedulable, trouble, drain, at_most(node))

    def draining(self) -> Mapping[str, Drain]:
        """See ``NodeDrains.draining``."""
        return self._drains

    def silent(self) -> frozenset[str]:
        """See ``NodeDrains.silent``; without those whose machines stand still for a moment, as their cloud has said."""
        frozen = (name for name, node in self._nodes.items() if node.freezes)
        return self._silent().difference(frozen)

    def sandboxes(self, node: str) -> Sequence[str]:
        """See ``NodeDrains.sandboxes``."""
        return self._on_node(node)

    def knows(self, node: str) -> bool:
        """See ``NodeDrains.knows``."""
        return node in self._nodes

    async def changes(self) -> AsyncIterator[str]:
        """See ``NodeDrains.changes``."""
        follower = _Follower(self._drains)
        self._followers.append(follower)
        try:
            while True:
                yield await follower.next()
        finally:
            self._followers.remove(follower)

    # What an operator wants.

    async def drain(self, node: str, until_ms: int, by: str) -> None:
        """See ``NodeDrains.drain``. Cost: two calls to the API server."""

        def patch(now: Mapping[str, Any]) -> Patch:
            before = own_fields(now) or {}
            cordoned = before.get("cordoned", bool((now.get("spec") or {}).get("unschedulable")))
            since_ms = before.get("since_ms", self._clock.now_ms())
            value = own_value(until_ms, since_ms, by, cordoned=bool(cordoned))
            return {"metadata": {"annotations": {ANNOTATION_DRAIN: value}}, "spec": {"unschedulable": True}}

        await self._change(node, patch)

    async def undrain(self, node: str) -> None:
        """See ``NodeDrains.undrain``. Cost: two calls to the API server."""

        def patch(now: Mapping[str, Any]) -> Patch | None:
            before = own_fields(now)
            if before is None:
                return None
            stays = bool(before.get("cordoned"))
            cordon = {} if stays else {"spec": {"unschedulable": None}}
            return {"metadata": {"annotations": {ANNOTATION_DRAIN: None}}, **cordon}

        await self._change(node, patch)
        if (other := self._other(node)) is not None:
            detail = f"node {node} is emptied since it {other.why} ({other.by}): what has set that mark can take it off"
            raise Problem("conflict", detail, node=node, by=other.by)

    def _other(self, node: str) -> Drain | None:
        """Why a node is emptied, besides rollbox's own mark, which this replica may not have seen go yet."""
        known = self._nodes.get(node)
        others = [] if known is None else [self._of(node, one) for one in known.marks if one.name != OWN]
        return min(others, key=lambda one: one.until_ms, default=None)

    async def _change(self, name: str, patch_of: Callable[[Mapping[str, Any]], Patch | None]) -> None:
        path = f"/api/v1/nodes/{name}"
        try:
            for _ in range(PATCHES):
                now = await self._client.get(path, within_s=WITHIN_S)
                if (patch := patch_of(now)) is None or await self._patched(path, now, patch):
                    return
        except Refused as refused:
            raise _told(name, refused) from refused
        raise Problem("conflict", f"node {name} changes all the time: try again", node=name)

    async def _patched(self, path: str, now: Mapping[str, Any], patch: Patch) -> bool:
        about = {**patch["metadata"], "resourceVersion": now["metadata"]["resourceVersion"]}
        try:
            changed = await self._client.patch(path, {**patch, "metadata": about}, within_s=WITHIN_S)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.CONFLICT:
                raise
            return False
        # The watch tells it in a moment: the answer to the operator says so already.
        self.see(Node.of(changed))
        return True


class _Follower:
    """The names of nodes that have changed, each once, for one reader."""

    def __init__(self, first: Mapping[str, Drain]) -> None:
        self._names = dict.fromkeys(first)
        self._some = asyncio.Event()

    def tell(self, name: str) -> None:
        self._names[name] = None
        self._some.set()

    async def next(self) -> str:
        while not self._names:
            self._some.clear()
            await self._some.wait()
        name = next(iter(self._names))
        del self._names[name]
        return name


def _told(name: str, refused: Refused) -> Problem:
    if refused.refusal.status == HTTPStatus.NOT_FOUND:
        return Problem("not_found", f"there is no node {name}", node=name)
    if refused.refusal.status == HTTPStatus.FORBIDDEN:
        detail = f"node {name} is left as it is: this installation may not change nodes (drain.byApi in its values)"
        return Problem("unsupported", detail, value="drain.byApi")
    return refused
