"""What the private registry holds, as its collector tells it, and what the collector is asked. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RegistryRoom:
    """How full the private registry is.

    Attributes:
        disk_bytes: of its volume, or what it may have of it.
        used_bytes: by it.
        full: nothing more is to be put there.
    """

    disk_bytes: int
    used_bytes: int
    full: bool


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image of the private registry.

    Attributes:
        repository: without the registry's host.
        digest: of its manifest or index.
        parts: the bytes of all that it has, by digest, as they are in the registry.
        used_ms: when it was put there or used, whichever is later (Unix ms).
        sources: of a copy: the digests that it was made of, which names of images mean.
        recorded: it is a recorded copy, and none of all owners has the same content.
        owners: of a recorded copy: what stands for those who had it made (``in_tags``).
        offered: of a recorded copy: starts of an owner are given it.
    """

    repository: str
    digest: str
    parts: Mapping[str, int]
    used_ms: int
    sources: Sequence[str] = ()
    recorded: bool = False
    owners: Sequence[str] = ()
    offered: bool = False


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection has done.

    Attributes:
        freed_bytes, freed_blobs: what is gone.
        ended_uploads: that had broken off.
        kept_blobs: that were used again while they were collected.
        blobs: that are there now.
    """

    freed_bytes: int
    freed_blobs: int
    ended_uploads: int = 0
    kept_blobs: int = 0
    blobs: int = 0


class CopyStore(Protocol):
    """The copies of the private registry: what they are, their uses, their removal. Failures are ``Problem``s."""

    async def stored(self) -> list[RegistryImage]:
        """The images of the registry, all recorded copies among them.

        Cost: a collector reads all links, 0.5 KiB of memory for each part; a registry is asked for each repository.

        Raises:
            Problem: internal, upstream_timeout.
        """
        ...

    async def use(self, repository: str, digest: str) -> bool:
        """Notes that a copy is used now; whether it is there, and whole.

        Raises:
            Problem: internal, upstream_timeout: nobody says.
        """
        ...

    async def remove(self, repository: str, digest: str, unused_since_ms: int) -> bool:
        """Removes a copy; whether there was one. Its bytes are free after the next collection.

        Args:
            repository: of copies.
            digest: of the copy.
            unused_since_ms: it is removed only if it was not used after this moment (Unix ms).

        Raises:
            Problem: conflict: it was used meanwhile; internal, upstream_timeout.
        """
        ...

    async def recorded(self, owner: str) -> tuple[int, int]:
        """How many recorded copies an owner has, and the bytes of all that these have. Cost: a list of all tags.

        Args:
            owner: what stands for it (``in_tags``).

        Raises:
            Problem: internal, upstream_timeout: nobody says.
        """
        ...


class Collector(CopyStore, Protocol):
    """Sees the private registry's files; ``controlplane.registry`` has its client. Failures are ``Problem``s."""

    async def room(self) -> RegistryRoom:
        """How full the registry is, as it was measured last. Cost: one call; nobody waits for a measurement.

        Raises:
            Problem: internal, upstream_timeout: nobody says.
        """
        ...

    async def collect(self, *, urgent: bool = False) -> Collected:
        """Gives back the room of what no image has; pushes and pulls go on meanwhile. Cost: minutes.

        Args:
            urgent: what was put there some minutes ago goes too, if no image has it.

        Raises:
            Problem: internal, upstream_timeout: the next one goes on with it.
        """
        ...


class RecordedList(Protocol):
    """Lists and removes the recorded copies of a registry whose files nobody here sees. Failures are ``Problem``s."""

    async def all(self) -> list[RegistryImage]:
        """The recorded copies; when they were used is not known (0).

        Cost: a request for a thousand repositories, for the tags of each converted image, and for each tag of an image
        that has a recorded copy; of a copy that was never seen, two more.

        Raises:
            Problem: upstream_timeout: the registry does not answer, or does not list what it has.
        """
        ...

    async def of(self, owner: str) -> list[RegistryImage]:
        """Those of one owner (``in_tags``), as it may have made them; cost and failures as ``all``."""
        ...

    async def there(self, repository: str, digest: str) -> bool:
        """Whether a copy is there. Cost: a request.

        Raises:
            Problem: upstream_timeout.
        """
        ...

    async def remove(self, repository: str, digest: str) -> bool:
        """Removes a copy with all that leads to it; whether there was one. Cost: as ``all`` for its repository.

        Raises:
            Problem: upstream_timeout: it is not removed, or not all of it.
        """
        ...
