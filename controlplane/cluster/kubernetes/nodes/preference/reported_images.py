"""``ReportedImages``: what agents have told of their nodes' images, of which they then tell changes alone. Pure.

A list is checked by its version, which follows from the marks of its images: one that came out wrong, whatever the
reason, is noticed by whoever holds it, and asked for as a whole.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from weakref import WeakValueDictionary

from controlplane.cluster.kubernetes.nodes.preference.catalogue import HeldImage

_MARK_BYTES: Final = 8
_VERSION_BYTES: Final = 16


def version_of(marks: Iterable[int]) -> str:
    """As ``contract/node.proto`` says (``ImageList.version``)."""
    return sha256(b"".join(one.to_bytes(_MARK_BYTES) for one in sorted(marks))).digest()[:_VERSION_BYTES].hex()


@dataclass(slots=True)
class _Told:
    version: str
    images: dict[int, HeldImage]


@dataclass(slots=True)
class ReportedImages:
    """The images of each node, by their marks, those that came last at the end."""

    _nodes: dict[str, _Told] = field(default_factory=dict)
    # The same image of several nodes is kept once.
    _shared: "WeakValueDictionary[int, HeldImage]" = field(default_factory=WeakValueDictionary)

    def version(self, node: str) -> str:
        """Of what is known of a node; empty: nothing is."""
        told = self._nodes.get(node)
        return "" if told is None else told.version

    def images(self, node: str) -> Collection[HeldImage]:
        """What is known of a node."""
        told = self._nodes.get(node)
        return () if told is None else told.images.values()

    def replace(self, node: str, version: str, images: Mapping[int, HeldImage]) -> None:
        """Takes in all images of a node, by their marks; one that has none has a number below zero instead."""
        self._nodes[node] = _Told(version, self._kept(images))

    def change(self, node: str, version: str, came: Mapping[int, HeldImage], gone: Iterable[int]) -> bool:
        """Takes in what came and went since the version that is known.

        Args:
            node: its name.
            version: of what it has now.
            came: the images that it has now and had not, by their marks.
            gone: the marks of those that it had.

        Returns:
            False: what that gives is not the new version, so nothing is known of the node any more.
        """
        told = self._nodes.pop(node, None)
        if told is None:
            return False
        for mark in gone:
            told.images.pop(mark, None)
        told.images |= self._kept(came)
        told.version = version
        if version_of(told.images) != version:
            return False
        self._nodes[node] = told
        return True

    def forget(self, node: str) -> None:
        """Forgets a node."""
        self._nodes.pop(node, None)

    def _kept(self, images: Mapping[int, HeldImage]) -> dict[int, HeldImage]:
        return {mark: self._shared.setdefault(mark, one) if mark > 0 else one for mark, one in images.items()}
