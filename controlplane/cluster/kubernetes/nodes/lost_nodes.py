"""Tracks the cluster's nodes, and decides which of them are lost."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.nodes.nodes import Node

# A kubelet that reports Ready=False still works and reports deaths: the node's runtime or network plugin restarts, and
# its sandboxes may run on meanwhile. After this time Kubernetes itself evicts the pods of such a node.
NOT_READY_S: Final = 300.0
# Ready=Unknown is set only after the cluster's own grace period. The additional time is for an API server that was down
# itself: when it is back, nodes are marked Unknown first, and kubelets report, every 10 s, only a moment later.
SILENT_S: Final = 12.0
MAX_REMEMBERED: Final = 1024
# Taints that say for certain that nothing runs on a node: a cloud has shut its machine down, an administrator says so.
SHUT_DOWN: Final = ("node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service")


class Nodes:
    """A mirror of the cluster's nodes, with only the fields that are needed here.

    Args:
        lost: called with the name of each node that is lost or deleted.
        seen: called with each node that is new or has changed.
        gone: called with the name of each node that was deleted.
        equip: adds to a node what others than its kubelet tell of it.
    """

    def __init__(
        self,
        lost: Callable[[str], None],
        seen: Callable[[Node], None] = lambda _: None,
        gone: Callable[[str], None] = lambda _: None,
        equip: Callable[[Node], Node] = lambda node: node,
    ) -> None:
        self._equip = equip
        self._lost = lost
        self._seen = seen
        self._gone = gone
        self._nodes: dict[str, Node] = {}
        self._all: Sequence[Node] | None = ()
        self._deleted: dict[str, None] = {}
        self._doubted: dict[str, asyncio.TimerHandle] = {}
        self._given_up: set[str] = set()

    @property
    def all(self) -> Sequence[Node]:
        """All nodes; the same object as long as none has changed."""
        if self._all is None:
            self._all = tuple(self._nodes.values())
        return self._all

    def get(self, name: str) -> Node | None:
        """A node; None: there is none."""
        return self._nodes.get(name)

    def ready(self, name: str) -> bool:
        """Whether a node is Ready."""
        node = self._nodes.get(name)
        return node is not None and node.ready == "True"

    def trouble(self, name: str) -> str | None:
        """Why a node is considered lost; None if it is not, or was never seen."""
        node = self._nodes.get(name)
        if node is None:
            return f"node {name} was deleted" if name in self._deleted else None
        if name not in self._given_up:
            return None
        if taint := _shut_down(node):
            return f"node {name} is shut down: it has the taint {taint}"
        if node.ready == "Unknown":
            return f"node {name} has fallen silent: {node.why_not_ready}"
        return f"node {name} is not ready for {NOT_READY_S:.0f} s: {node.why_not_ready}"

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        seen = {str(one["metadata"]["name"]) for one in objects}
        for name in [name for name in self._nodes if name not in seen]:
            self._drop(name)
        for one in objects:
            self.put(one)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        node = self._equip(Node.of(thing))
        before = self._nodes.get(node.name)
        if node != before:
            self._nodes[node.name], self._all = node, None
        self._deleted.pop(node.name, None)
        self._seen(node)
        if before is None or before.ready != node.ready:
            self._trust(node.name)
        if node.ready == "True" or node.name in self._given_up:
            return
        if _shut_down(node):
            self._trust(node.name)
            self._give_up(node.name)
        elif node.name not in self._doubted:
            within_s = SILENT_S if node.ready == "Unknown" else NOT_READY_S
            self._doubted[node.name] = asyncio.get_running_loop().call_later(within_s, self._give_up, node.name)

    def equip_again(self) -> None:
        """Takes in that what ``equip`` adds has changed."""
        for name, before in [*self._nodes.items()]:
            if (node := self._equip(before)) != before:
                self._nodes[name], self._all = node, None
                self._seen(node)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._drop(str(thing["metadata"]["name"]))

    def close(self) -> None:
        """Cancels all timers."""
        for name in tuple(self._doubted):
            self._trust(name)

    def _drop(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._all = None
        self._gone(name)
        self._trust(name)
        self._deleted[name] = None
        if len(self._deleted) > MAX_REMEMBERED:
            del self._deleted[next(iter(self._deleted))]
        self._lost(name)

    def _trust(self, name: str) -> None:
        self._given_up.discard(name)
        if (timer := self._doubted.pop(name, None)) is not None:
            timer.cancel()

    def _give_up(self, name: str) -> None:
        self._doubted.pop(name, None)
        self._given_up.add(name)
        self._lost(name)


def _shut_down(node: Node) -> str:
    """The taint that says so; empty: none does."""
    return next((str(one["key"]) for one in node.taints if one.get("key") in SHUT_DOWN), "")
