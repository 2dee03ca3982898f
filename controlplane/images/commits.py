"""Names of images that were made of sandboxes: ``PLACE/OWNER/NAME:TAG``, so that each says whose it is. Pure.

An owner may have anything as a name, and an image may not: what is no part of an image's name stands there as a digest.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from controlplane.images.reference import Reference, parse

# Longer ones, and those that look like a digest of ours, stand there as a digest.
MAX_OWNER_CHARS: Final = 40
_PLAIN: Final = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_DIGEST: Final = "owner-"
# The name among each owner's images that checkpoints have.
CHECKPOINTS: Final = "checkpoints"
# The tags that a cluster may use for itself.
_TAKEN: Final = re.compile(r"id-[0-9a-f]{64}(?:-[0-9]+)?")


def folder(owner: str) -> str:
    """The part of a name that stands for an owner; no two owners have the same."""
    if len(owner) <= MAX_OWNER_CHARS and _PLAIN.fullmatch(owner) and not owner.startswith(_DIGEST):
        return owner
    return f"{_DIGEST}{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def target(place: str, owner: str, name: str) -> str:
    """The name of an owner's image, with a tag.

    Args:
        place: below which a cluster has what was committed.
        owner: whose it is to be.
        name: as its owner gives it, ``NAME[:TAG]``; or as this function has returned it.

    Raises:
        ValueError: it is malformed; the message says what is wrong with it.
    """
    if "@" in name:
        raise ValueError(f"{name[:140]!r} has a digest, which an image gets from what is in it")
    reference = own_reference(place, owner, name)
    if reference.name == f"{place}/{folder(owner)}/{CHECKPOINTS}":
        raise ValueError(f"the name {CHECKPOINTS!r} is taken: it is that of checkpoints")
    if _TAKEN.fullmatch(reference.tag):
        raise ValueError(f"the tag {reference.tag!r} is taken: it stands for an image's digest")
    return str(reference)


def own_reference(place: str, owner: str, name: str) -> Reference:
    """What an owner means by the name of an image of its own, with or without the place where these are.

    Raises:
        ValueError: it is malformed; the message says what is wrong with it.
    """
    own = f"{place}/{folder(owner)}/"
    return parse(own + name.removeprefix(own))


def is_foreign(place: str, owner: str, reference: Reference) -> bool:
    """Whether a name is one of another owner's; ``place`` is empty where nothing is committed."""
    if not place or not f"{reference.name}/".startswith(f"{place}/"):
        return False
    return not reference.name.startswith(f"{place}/{folder(owner)}/")


def built_on(layers: Mapping[str, tuple[str, ...]], bare: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Which of some images each of them is built on: those that have fewer layers, all of which are its first ones.

    Where nothing was written there are equal layers, also within one image: what a single layer is says nothing.

    Args:
        layers: of each image, by its digest; the lowest first.
        bare: the digests of those without a layer of their own, on which nothing is built: all layers are their base's.
    """
    by_layers: dict[tuple[str, ...], list[str]] = {}
    for digest, own in layers.items():
        if digest not in bare:
            by_layers.setdefault(own, []).append(digest)
    return {digest: tuple(_shorter(own, by_layers)) for digest, own in layers.items()}


def _shorter(own: tuple[str, ...], by_layers: Mapping[tuple[str, ...], Sequence[str]]) -> Iterator[str]:
    for count in range(1, len(own)):
        yield from by_layers.get(own[:count], ())
