"""The recorded copies of a registry that somebody else looks after, in memory."""

from dataclasses import dataclass, field

from controlplane.errors import Problem
from controlplane.images import RegistryImage


@dataclass
class FakeRecorded:
    """See ``images.RecordedList``. ``refuses``: nothing can be removed there."""

    copies: dict[tuple[str, str], RegistryImage] = field(default_factory=dict)
    refuses: bool = False

    def put(self, repository: str, digest: str, *owners: str, offered: bool, **parts: int) -> None:
        """Has a copy from now on; without parts it has 200 bytes of its own."""
        own = parts or {digest: 200}
        self.copies[repository, digest] = RegistryImage(
            repository, digest, own, 0, recorded=True, owners=owners, offered=offered
        )

    async def all(self) -> list[RegistryImage]:
        return list(self.copies.values())

    async def of(self, owner: str) -> list[RegistryImage]:
        return [one for one in self.copies.values() if owner in one.owners]

    async def there(self, repository: str, digest: str) -> bool:
        return (repository, digest) in self.copies

    async def remove(self, repository: str, digest: str) -> bool:
        if self.refuses:
            raise Problem("upstream_timeout", "the registry answers 405 to DELETE")
        return self.copies.pop((repository, digest), None) is not None
