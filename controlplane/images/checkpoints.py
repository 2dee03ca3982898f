"""Checkpoints: committed images that have an id in place of a name, and end by themselves. Pure.

An id says what a checkpoint was made of, how many are below each other, and until when it can be started from. So
nothing beside the image has to be kept of it, and nothing is lost with a store.
"""

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from controlplane.images.commits import CHECKPOINTS, folder
from controlplane.images.reference import Reference, parse

# 24 h, as long as the record of an ended sandbox is kept.
DEFAULT_TTL_MS: Final = 24 * 3_600_000
MIN_TTL_MS: Final = 1_000
MAX_TTL_MS: Final = 7 * 24 * 3_600_000
MAX_DEPTH: Final = 9_999
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID: Final = re.compile(
    r"cp-(?P<sandbox>[a-z0-9]{1,32})-(?P<depth>[0-9]{1,4})-(?P<expires>[0-9]{1,12})-(?P<random>[a-z0-9]{8})"
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the id of a checkpoint says.

    Attributes:
        id: ``cp-...``.
        sandbox_id: of which it was made.
        depth: 1 for one of a sandbox that was started from an image, and one more for each checkpoint in between.
        expires_at_ms: from when on nothing starts from it (Unix ms).
    """

    id: str
    sandbox_id: str
    depth: int
    expires_at_ms: int

    @classmethod
    def new(cls, sandbox_id: str, below: Self | None, expires_at_ms: int) -> Self:
        """Another one.

        Args:
            sandbox_id: of which it is made.
            below: the checkpoint that this sandbox was started from; None: it was another image.
            expires_at_ms: Unix ms; a part of a second is counted as a whole one.

        Raises:
            ValueError: there are too many below each other.
        """
        depth = 1 if below is None else below.depth + 1
        if depth > MAX_DEPTH:
            raise ValueError(f"there are {MAX_DEPTH} checkpoints below each other already")
        random = "".join(secrets.choice(_ALPHABET) for _ in range(8))
        expires_s = -(-expires_at_ms // 1000)
        return cls(
            f"cp-{sandbox_id.removeprefix('sb-')}-{depth}-{expires_s}-{random}", sandbox_id, depth, expires_s * 1000
        )

    @classmethod
    def read(cls, text: str) -> Self | None:
        """What an id says; None: it is none."""
        found = _ID.fullmatch(text)
        if found is None:
            return None
        return cls(text, f"sb-{found['sandbox']}", int(found["depth"]), int(found["expires"]) * 1000)

    @classmethod
    def of(cls, place: str, reference: Reference) -> Self | None:
        """The checkpoint that an image's name stands for; None: it is another image.

        Args:
            place: below which a cluster has what was committed; empty: nothing is.
            reference: with or without a digest.
        """
        owner, _, rest = reference.name.removeprefix(f"{place}/").partition("/")
        if not place or not reference.name.startswith(f"{place}/") or not owner or rest != CHECKPOINTS:
            return None
        return cls.read(reference.tag)

    @classmethod
    def among(cls, place: str, name: str, tags: Iterable[str]) -> Self | None:
        """The checkpoint that an image with these tags is; None: it is one with a name. See ``of``."""
        found = (cls.of(place, parse(f"{name}:{tag}")) for tag in tags)
        return next((one for one in found if one is not None), None)

    def name(self, place: str, owner: str) -> str:
        """The name of its image, with its id as the tag."""
        return f"{place}/{folder(owner)}/{CHECKPOINTS}:{self.id}"
