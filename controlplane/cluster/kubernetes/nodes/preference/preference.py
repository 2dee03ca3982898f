"""``NodePreference``: what is known of nodes, images and sandboxes, and the nodes that a start prefers by it."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.nodes.preference.catalogue import Catalogue, key_of
from controlplane.cluster.kubernetes.nodes.preference.choice import Candidates, in_order, preferred, pulled_next
from controlplane.cluster.kubernetes.nodes.preference.occupancy import Occupancy
from controlplane.cluster.kubernetes.nodes.resources import request_of
from controlplane.model import SandboxSpec

# What was seen on a node counts for so long, unless its agent tells the same: two of its looks, and some time.
NOTED_MS: Final = 180_000
# Images, each with the nodes on which it was seen.
MOST_NOTED: Final = 8_192
# A node that did not get an image is not preferred for it for so long; nor for any that it has to pull, once it did not
# get so many different ones: its disk may be full, or its way to the registry cut.
FAILED_MS: Final = 600_000
FAILED_IMAGES: Final = 3
# Images of one node.
MOST_FAILED: Final = 64
# Of a node's room, in percent: what other pods have of it is not known here.
RESERVE_PERCENT: Final = 10
_SHARED: Final = ("cpu", "memory")


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
        self.occupancy = Occupancy(self._note, self._fail)
        # By image and node: until when it counts (Unix ms), and whether the node has it already.
        self._noted: OrderedDict[str, dict[str, tuple[int, bool]]] = OrderedDict()
        self._failed: dict[str, OrderedDict[str, int]] = {}

    def note(self, node: str, image: str) -> None:
        """Takes in that a node has an image now, until its agent tells it."""
        self._note(key_of(image), node)

    def expect(self, node: str, image: str) -> None:
        """Takes in that a node is about to pull an image: starts prefer it, and none waits for its slots."""
        self._note(key_of(image), node, there=False)

    def failed(self, node: str, image: str) -> None:
        """Takes in that a node did not get an image."""
        self._fail(key_of(image), node)

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
        able = {one.name: one for one in nodes if _takes_starts(one) and _has(one, spec.node_selector)}
        wanted, image = request_of(spec), key_of(spec.image)
        candidates = self._candidates(image, layers, [*able], lazily=lazily)
        return preferred(image, start, candidates, lambda node: self._room(able[node], wanted))

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int], nodes: Sequence[Node]) -> Sequence[str]:
        """The nodes with room for a sandbox that have its image; one that pulls it for a start has not yet.

        Args:
            spec: what it is to be, with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.
            nodes: those that sandboxes may run on.
        """
        able = {one.name: one for one in nodes if _takes_starts(one) and _has(one, spec.node_selector)}
        image, wanted, now_ms = key_of(spec.image), request_of(spec), self._clock.now_ms()
        told = self.catalogue.shares(image, layers, able, lazily=False)
        has = {node for node, share in told.items() if share >= 1.0}
        noted = self._noted.get(image, {})
        has.update(node for node, (until_ms, there) in noted.items() if there and node in able and now_ms < until_ms)
        return [node for node in able if node in has and self._room(able[node], wanted)]

    def best(self, image: str, layers: Mapping[str, int], nodes: Sequence[Node], count: int) -> Sequence[str]:
        """The nodes on which an image should be, in the order in which starts prefer them.

        Args:
            image: its name, as nodes pull it.
            layers: that it has, with their bytes; empty: not known.
            nodes: those that may be chosen.
            count: how many.
        """
        able = {one.name: one for one in nodes if _takes_starts(one)}
        key, wanted = key_of(image), request_of(SandboxSpec(image=image))
        candidates = self._candidates(key, layers, [*able], lazily=False)
        ordered = [*in_order(key, candidates.whole), *pulled_next(key, candidates)]
        # Where all are full the first ones are as good as any: room comes and goes.
        roomy = [one for one in ordered if self._room(able[one], wanted)]
        return [*roomy, *(one for one in ordered if one not in {*roomy})][:count]

    def _candidates(self, image: str, layers: Mapping[str, int], nodes: Sequence[str], *, lazily: bool) -> Candidates:
        shares = {**self.catalogue.shares(image, layers, nodes, lazily=lazily)}
        running, now_ms = self.occupancy.running(image), self._clock.now_ms()
        noted = {node: note for node, note in self._noted.get(image, {}).items() if now_ms < note[0]}
        if image in self._noted:
            self._noted[image] = noted
        shares.update(dict.fromkeys((*running, *noted), 1.0))
        able = [one for one in nodes if shares.get(one, 0.0) >= 1.0 or not self._fails(one, image, now_ms)]
        return Candidates(able, shares, running)

    def _fails(self, node: str, image: str, now_ms: int) -> bool:
        """Whether a node is not to be preferred for an image that it has to pull."""
        failed = self._failed.get(node)
        if not failed:
            return False
        while failed and next(iter(failed.values())) <= now_ms:
            failed.popitem(last=False)
        return image in failed or len(failed) >= FAILED_IMAGES

    def _room(self, node: Node, wanted: Mapping[str, int]) -> bool:
        used = self.occupancy.used(node.name)
        if node.pods and used.get("pods", 0) >= node.pods:
            return False
        for name, needed in wanted.items():
            for_others = RESERVE_PERCENT if name in _SHARED else 0
            if needed and node.allocatable[name] * (100 - for_others) // 100 - used.get(name, 0) < needed:
                return False
        return True

    def _note(self, image: str, node: str, *, there: bool = True) -> None:
        noted, now_ms = self._noted.setdefault(image, {}), self._clock.now_ms()
        until_ms, had = noted.get(node, (0, False))
        noted[node] = (now_ms + NOTED_MS, there or (had and now_ms < until_ms))
        self._noted.move_to_end(image)
        if len(self._noted) > MOST_NOTED:
            self._noted.popitem(last=False)

    def _fail(self, image: str, node: str) -> None:
        self._noted.get(image, {}).pop(node, None)
        failed = self._failed.setdefault(node, OrderedDict())
        failed[image] = self._clock.now_ms() + FAILED_MS
        failed.move_to_end(image)
        if len(failed) > MOST_FAILED:
            failed.popitem(last=False)


def _takes_starts(node: Node) -> bool:
    return node.ready == "True" and node.schedulable


def _has(node: Node, labels: Mapping[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())
