"""``Commits``: makes images of sandboxes; ``KeptImages``: those that were made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Committed:
    """An image that was made of a sandbox.

    Attributes:
        name: the target, as ``commit`` was given it.
        digest: by which ``start`` takes it.
        size_bytes: of its new layer, as it is kept.
        skipped: what of the sandbox is not in the image, each with the reason; bounded.
    """

    name: str
    digest: str
    size_bytes: int
    skipped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CommittedImage:
    """An image that was made of a sandbox, as the cluster keeps it.

    Attributes:
        name: below ``Commits.place``, without a tag.
        tags: those that it has now; none: a later commit to the name took the last one.
        digest: by which ``start`` takes it.
        size_bytes: of its own layer, as it is kept.
        created_at_ms: when it was made (Unix ms).
        built_on: digests of those of the same owner whose layers it has too.
    """

    name: str
    tags: Sequence[str]
    digest: str
    size_bytes: int
    created_at_ms: int
    built_on: Sequence[str] = ()


class KeptImages(Protocol):
    """The images that were made of sandboxes."""

    async def digest(self, name: str) -> str:
        """The digest of the image that was committed by a name with a tag; empty: there is none. Cost: a call.

        Raises:
            Problem: those of a cluster that does not answer.
        """
        ...

    async def below(self, folder: str) -> Sequence[CommittedImage]:
        """The images that were committed below ``folder``: ``place`` and an owner's part. Cost: a call, or one each.

        Raises:
            Problem: those of a cluster that does not answer.
        """
        ...

    async def expired(self, before_ms: int) -> Sequence[CommittedImage]:
        """The checkpoints of all owners that had expired at a moment, without the images that they are built on.

        Cost: the names of all checkpoints are read; of those that have not expired nothing else. Called once a minute.

        Args:
            before_ms: the moment (Unix ms).

        Raises:
            Problem: those of a cluster that does not answer.
        """
        ...

    async def remove(self, image: CommittedImage) -> None:
        """Removes an image that was committed, with all its names; success if it is gone already.

        Raises:
            Problem: conflict: something runs from it; those of a cluster that does not answer.
        """
        ...


class Commits(Protocol):
    """Makes images of sandboxes."""

    @property
    def place(self) -> str:
        """The registry and folder below which ``commit`` puts images.

        The next part of a name is its owner's (``controlplane.images.commits``): the caller of ``start`` and ``commit``
        lets an owner have nothing of another one's, by name. So a cluster starts what is there by that very name only,
        and not, for example, by its digest under another name.
        """
        ...

    @property
    def kept(self) -> KeptImages:
        """What was made."""
        ...

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        """Makes an image of a running sandbox: its own one, and a layer of what its file system has beyond that.

        The image has the configuration of the sandbox's own one, and nothing of the platform. The sandbox's processes
        stand still meanwhile. Either the image is there, or nothing: a call that fails or is cancelled leaves none.

        Args:
            sandbox_id: which one.
            target: below ``place``, with a tag; an image that has this name loses it.
            max_bytes: the most that the layer may have.
            squash: the top layer of the sandbox's own image is not below the new one, but a part of it: the new image
                has as many layers as the sandbox's, and nothing of what was changed in between.

        Raises:
            Problem: payload_too_large: it is over ``max_bytes``; capacity_unavailable: no room for it; conflict: it is
                being committed already; sandbox_lost: it does not run.
        """
        ...
