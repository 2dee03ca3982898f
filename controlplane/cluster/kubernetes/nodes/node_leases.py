"""``NodeLeases``: which kubelets have stopped to renew their leases, long before Kubernetes takes their nodes for lost.

A kubelet renews its lease every ten seconds. Only that it is silent is known by that, not that its sandboxes are: who
ends any has to try them first. Renewals are timed when they are heard of, so no clocks are compared; and nothing is
judged by a watch that hears of nobody, since then it is this side that is cut off.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import Json

# Two renewals are missed.
SILENT_S: Final = 20.0
# One that is not older says that the watch hears what there is to hear.
FRESH_S: Final = 12.0
JUDGE_EVERY_S: Final = 1.0


def silent(ages_s: Mapping[str, float]) -> frozenset[str]:
    """The nodes that are silent. Pure.

    Args:
        ages_s: how long ago each node's last renewal was heard of.
    """
    found = frozenset(name for name, age_s in ages_s.items() if age_s > SILENT_S)
    heard = any(age_s <= FRESH_S for age_s in ages_s.values())
    return found if heard and len(found) <= most_silent(len(ages_s)) else frozenset()


def most_silent(nodes: int) -> int:
    """So many of them may be silent at once; where more are, it is the API server's network, or this replica's. Pure.

    Fewer than half, so that a zone of three can be lost: Kubernetes marks all pods of such nodes first, which takes its
    controller minutes for thousands (20 requests a second, by default), and believes in it only then.
    """
    return max(1, (nodes - 1) // 2)


class NodeLeases:
    """A mirror of the leases of nodes.

    Args:
        changed: called with the name of each node that falls silent, or is not silent any more.
        now_s: a steady clock.
    """

    def __init__(self, changed: Callable[[str], None], now_s: Callable[[], float] | None = None) -> None:
        self._changed = changed
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._renewals: dict[str, str] = {}
        self._heard_s: dict[str, float] = {}
        self._silent: frozenset[str] = frozenset()

    @property
    def silent(self) -> frozenset[str]:
        """The nodes that are silent, as they were last judged."""
        return self._silent

    async def run(self) -> None:
        """Judges until it is cancelled."""
        while True:
            await asyncio.sleep(JUDGE_EVERY_S)
            self.judge()

    def judge(self) -> None:
        """ConsoleViews once. Cost: O(nodes)."""
        now_s = self._now_s()
        before, self._silent = self._silent, silent({name: now_s - at_s for name, at_s in self._heard_s.items()})
        for name in before ^ self._silent:
            self._changed(name)

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        there = {str(one["metadata"]["name"]) for one in objects}
        for name in [name for name in self._heard_s if name not in there]:
            self._drop(name)
        for one in objects:
            self.put(one)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        name, renewal = str(thing["metadata"]["name"]), str((thing.get("spec") or {}).get("renewTime") or "")
        if self._renewals.get(name) != renewal:
            self._renewals[name] = renewal
            self._heard_s[name] = self._now_s()

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._drop(str(thing["metadata"]["name"]))

    def _drop(self, name: str) -> None:
        self._renewals.pop(name, None)
        self._heard_s.pop(name, None)
