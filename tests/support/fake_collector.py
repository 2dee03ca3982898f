"""A registry's collector in memory."""

from dataclasses import dataclass, field, replace

from controlplane.errors import Problem
from controlplane.images import Collected, RegistryImage, RegistryRoom


@dataclass
class FakeCollector:
    """A registry of 1,000 bytes, unless told otherwise.

    What is removed takes its bytes until the next collection.
    """

    disk_bytes: int = 1000
    full: bool = False
    away: bool = False
    images: dict[tuple[str, str], RegistryImage] = field(default_factory=dict)
    garbage: dict[str, int] = field(default_factory=dict)
    used: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    in_use: set[str] = field(default_factory=set)
    keeps_all: bool = False  # refuses every removal
    refused: int = 0
    collections: list[bool] = field(default_factory=list)

    def put(self, repository: str, digest: str, used_ms: int = 1, **parts: int) -> None:
        """Has an image from now on; without parts it has 200 bytes of its own."""
        own = parts or {digest: 200}
        self.images[repository, digest] = RegistryImage(repository, digest, own, used_ms)

    def recorded_for(self, repository: str, digest: str, *owners: str, offered: bool) -> None:
        """Says that a copy that it has is a recorded one of these owners."""
        image = self.images[repository, digest]
        self.images[repository, digest] = replace(image, recorded=True, owners=owners, offered=offered)

    def made_of(self, repository: str, digest: str, source: str) -> None:
        """Says what a copy that it has was made of."""
        self.images[repository, digest] = replace(self.images[repository, digest], sources=[source])

    def _parts(self) -> dict[str, int]:
        return {part: size for one in self.images.values() for part, size in one.parts.items()}

    def _asked(self) -> None:
        if self.away:
            raise Problem("upstream_timeout", "the registry's collector answered UNAVAILABLE")

    async def room(self) -> RegistryRoom:
        self._asked()
        return RegistryRoom(self.disk_bytes, sum((self.garbage | self._parts()).values()), self.full)

    async def stored(self) -> list[RegistryImage]:
        self._asked()
        return list(self.images.values())

    async def recorded(self, owner: str) -> tuple[int, int]:
        self._asked()
        own = [one for one in self.images.values() if owner in one.owners]
        return len(own), sum({part: size for one in own for part, size in one.parts.items()}.values())

    async def use(self, repository: str, digest: str) -> bool:
        self._asked()
        self.used.append((repository, digest))
        return repository not in self.removed

    async def remove(self, repository: str, digest: str, unused_since_ms: int) -> bool:
        self._asked()
        if digest in self.in_use:
            raise Problem("conflict", "it was used meanwhile")
        if self.keeps_all:
            self.refused += 1
            raise Problem("unsupported", "it deletes nothing")
        image = self.images.get((repository, digest))
        if image is None:
            return False
        assert unused_since_ms == image.used_ms
        self.garbage |= image.parts
        del self.images[repository, digest]
        self.removed.append(repository)
        return True

    async def collect(self, *, urgent: bool = False) -> Collected:
        self._asked()
        self.collections.append(urgent)
        gone = {part: size for part, size in self.garbage.items() if part not in self._parts()}
        self.garbage.clear()
        self.full = self.full and not gone
        return Collected(sum(gone.values()), len(gone), blobs=len(self._parts()))
