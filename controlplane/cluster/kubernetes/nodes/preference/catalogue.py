"""``Catalogue``: which nodes have which images and layers, as their agents told last. Pure.

A set of nodes is a number with a bit for each: 20,000 images with ten layers each on 1,000 nodes take some 120 MB, and
a question takes milliseconds (``tests/bench/preferred_nodes.py``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from controlplane.images import parse

# Of one node, the last of those that are told; further ones are not known, which costs a pull and nothing else.
MOST_IMAGES: Final = 4096


def key_of(image: str) -> str:
    """What tells images from one another: the digest, or a whole name with its tag where there is none."""
    try:
        reference = parse(image)
    except ValueError:
        return image
    return reference.digest or str(reference)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class HeldImage:
    """An image that a node has.

    Attributes:
        digests: by which it may be meant.
        names: with tags, by which it may be meant where no digest is known; see ``key_of``.
        layers: the bytes of each, compressed, by digest; empty: not told.
        lazy: its files are fetched as they are read, so that the node has no layer of it.
    """

    digests: Sequence[str]
    names: Sequence[str] = ()
    layers: Mapping[str, int] = field(default_factory=dict)
    lazy: bool = False


@dataclass(slots=True)
class _Known:
    """An image that some nodes have: the sets of those that have all of it, and of those that mount it lazily."""

    layers: Mapping[str, int]
    whole: int = 0
    lazily: int = 0


@dataclass(slots=True)
class Catalogue:
    """What the nodes have."""

    _positions: dict[str, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _told: dict[str, frozenset[str]] = field(default_factory=dict)
    _images: dict[str, _Known] = field(default_factory=dict)
    _layers: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> Collection[str]:
        """Those that have told."""
        return self._told.keys()

    def __len__(self) -> int:
        return len(self._images)

    def replace(self, node: str, images: Iterable[HeldImage]) -> None:
        """Takes in all images of a node, those that are needed most at the end. Cost: a pass over their layers."""
        bit = 1 << self._position(node)
        held = {key: image for image in [*images][-MOST_IMAGES:] for key in (*image.digests, *image.names)}
        before = self._told.get(node, frozenset())
        layers_before = self._layers_on(before, bit)
        for key in before:
            self._clear(key, bit)
        for key, image in held.items():
            self._set(key, bit, image)
        self._told[node] = frozenset(held)
        layers_after = self._layers_on(held, bit)
        for layer in layers_after - layers_before:
            self._layers[layer] = self._layers.get(layer, 0) | bit
        for layer in layers_before - layers_after:
            self._unset(layer, bit)
        for key in before - held.keys():
            self._drop(key)

    def forget(self, node: str) -> None:
        """Forgets a node; its place in the catalogue is free for another node."""
        if node in self._told:
            self.replace(node, ())
            del self._told[node]
            self._free.append(self._positions.pop(node))

    def layers(self, image: str) -> Mapping[str, int]:
        """The layers of an image that some node has, by its key; empty: not known."""
        known = self._images.get(image)
        return {} if known is None else known.layers

    def shares(
        self, image: str, layers: Mapping[str, int], nodes: Iterable[str], *, lazily: bool
    ) -> Mapping[str, float]:
        """How much of an image nodes have already: 1 is all of it; those that have nothing are left out.

        Args:
            image: its key.
            layers: those that it has; empty: as a node has told.
            nodes: which ones are asked for.
            lazily: it is to be mounted lazily, so a node that does so already has to fetch nothing.
        """
        known = self._images.get(image) or _Known({})
        whole = known.whole | (known.lazily if lazily else 0)
        sizes = layers or known.layers
        parts = [(self._layers.get(layer, 0), size) for layer, size in sizes.items()]
        some, total = reduce(or_, (mask for mask, _ in parts), 0), sum(sizes.values())
        found: dict[str, float] = {}
        for node in nodes:
            position = self._positions.get(node)
            if position is None:
                continue
            if whole >> position & 1:
                found[node] = 1.0
            elif total and some >> position & 1:
                found[node] = sum(size for mask, size in parts if mask >> position & 1) / total
        return found

    def _position(self, node: str) -> int:
        if node not in self._positions:
            self._positions[node] = self._free.pop() if self._free else len(self._positions)
        return self._positions[node]

    def _set(self, key: str, bit: int, image: HeldImage) -> None:
        # A tag means another image on another node, with other layers.
        layers = image.layers if key in image.digests else {}
        known = self._images.setdefault(key, _Known(layers))
        known.layers = known.layers or layers
        if image.lazy:
            known.lazily |= bit
        else:
            known.whole |= bit

    def _clear(self, key: str, bit: int) -> None:
        known = self._images[key]
        known.whole &= ~bit
        known.lazily &= ~bit

    def _drop(self, key: str) -> None:
        known = self._images[key]
        if not known.whole and not known.lazily:
            del self._images[key]

    def _layers_on(self, keys: Iterable[str], bit: int) -> set[str]:
        images = (self._images[key] for key in keys)
        return {layer for one in images if one.whole & bit for layer in one.layers}

    def _unset(self, layer: str, bit: int) -> None:
        # None: another node has told of these layers later than this one has told of the image.
        left = self._layers.pop(layer, 0) & ~bit
        if left:
            self._layers[layer] = left
