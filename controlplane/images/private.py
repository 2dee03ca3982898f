"""The installation's own registry: where copies of images are in it, and what there is no user's to name. Pure."""

import hashlib
from dataclasses import dataclass
from typing import Final

from controlplane.images.reference import MAX_NAME_CHARS, Reference

# The first part of a repository's name: copies of others' images, and what was made of sandboxes.
MIRRORED: Final = "mirror"
COMMITTED: Final = "commits"


@dataclass(frozen=True, slots=True)
class PrivateRegistry:
    """The private registry.

    Attributes:
        host: host and port by which nodes, mirror and images' names know it.
    """

    host: str

    @property
    def commits(self) -> str:
        """The registry and folder below which are the images that were made of sandboxes."""
        return f"{self.host}/{COMMITTED}"

    def holds(self, reference: Reference) -> bool:
        """Whether a name is one of this registry's."""
        return reference.registry == self.host

    def hides(self, reference: Reference) -> bool:
        """Whether a name is of a copy, or of anything but a commit: nodes may read it, and no user may name it.

        Whose a copy is, is its source's registry to say; by the name of the copy nobody would be asked.
        """
        return self.holds(reference) and not reference.name.startswith(f"{self.commits}/")

    def repository(self, source: Reference) -> str:
        """The repository of the copies of an image, without the host; no two sources have the same.

        A port's colon becomes ``__``, which no host name has.
        """
        path = f"{MIRRORED}/{source.registry.replace(':', '__')}/{source.repository}"
        if "[" not in path and len(self.host) + 1 + len(path) <= MAX_NAME_CHARS:
            return path
        return f"{MIRRORED}/{hashlib.sha256(source.name.encode()).hexdigest()[:40]}"

    def copy(self, source: Reference, digest: str) -> str:
        """The name by which nodes pull a copy."""
        return f"{self.host}/{self.repository(source)}@{digest}"
