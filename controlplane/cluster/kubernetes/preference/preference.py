"""``NodePreference``: what is known of nodes, images and sandboxes, and the nodes that a start prefers by it."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.nodes import Node
from controlplane.cluster.kubernetes.preference.catalogue import Catalogue, key_of
from controlplane.cluster.kubernetes.preference.choice import Candidates, preferred, pulled_next
from controlplane.cluster.kubernetes.preference.occupancy import Occupancy
from controlplane.cluster.kubernetes.resources import request_of
from controlplane.model import SandboxSpec

# What was seen on a node counts for so long, unless its agent tells the same: two of its looks, and some time.
NOTED_MS: Final = 180_000
# Images, each with the nodes on which it was seen.
MOST_NOTED: Final = 8_192


class NodePreference:
    """Which nodes have which image, as far as this replica knows. Cost of all methods: no call.

    Args:
        clock: the time of day.

    Attributes:
        catalogue: what the nodes' agents have told.
        occupancy: a mirror of the pods.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.catalogue = Catalogue()
        self.occupancy = Occupancy(self._note)
        self._noted: OrderedDict[str, dict[str, int]] = OrderedDict()

    def note(self, node: str, image: str) -> None:
        """Takes in that a node has an image now, until its agent tells it."""
        self._note(key_of(image), node)

    def wishes(
        self, start: str, spec: SandboxSpec, layers: Mapping[str, int], nodes: Sequence[Node], *, lazily: bool
    ) -> Sequence[tuple[str, int]]:
        """The nodes that a start prefers, with their weights; see ``choice``.

        Args:
            start: the sandbox.
            spec: what it is to be, with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.
            nodes: those that sandboxes may run on.
            lazily: its image is mounted lazily.
        """
        able = [one for one in nodes if one.ready == "True" and one.schedulable and _has(one, spec.node_selector)]
        by_name, wanted, image = {one.name: one for one in able}, request_of(spec), key_of(spec.image)
        candidates = self._candidates(image, layers, [*by_name], lazily=lazily)
        return preferred(image, start, candidates, lambda node: self._room(by_name[node], wanted))

    def best(self, image: str, layers: Mapping[str, int], nodes: Sequence[Node], count: int) -> Sequence[str]:
        """The nodes on which an image should be: those that have it, then those that have to pull least.

        Args:
            image: its name, as nodes pull it.
            layers: that it has, with their bytes; empty: not known.
            nodes: those that may be chosen.
            count: how many.
        """
        key = key_of(image)
        candidates = self._candidates(key, layers, [one.name for one in nodes], lazily=False)
        return [*sorted(candidates.whole), *pulled_next(key, candidates)][:count]

    def _candidates(self, image: str, layers: Mapping[str, int], nodes: Sequence[str], *, lazily: bool) -> Candidates:
        shares = {**self.catalogue.shares(image, layers, nodes, lazily=lazily)}
        running, noted = self.occupancy.running(image), self._noted.get(image, {})
        now_ms = self._clock.now_ms()
        shares.update(dict.fromkeys(running, 1.0))
        shares.update({node: 1.0 for node, until_ms in noted.items() if now_ms < until_ms})
        return Candidates(nodes, shares, running)

    def _room(self, node: Node, wanted: Mapping[str, int]) -> bool:
        used = self.occupancy.used(node.name)
        if node.pods and used.get("pods", 0) >= node.pods:
            return False
        return all(node.allocatable[name] - used.get(name, 0) >= needed for name, needed in wanted.items() if needed)

    def _note(self, image: str, node: str) -> None:
        noted = self._noted.setdefault(image, {})
        noted[node] = self._clock.now_ms() + NOTED_MS
        self._noted.move_to_end(image)
        if len(self._noted) > MOST_NOTED:
            self._noted.popitem(last=False)


def _has(node: Node, labels: Mapping[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())
