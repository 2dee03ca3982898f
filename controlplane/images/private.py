"""The installation's own registry: where copies of images are in it, and what there is no user's to name. Pure."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal, get_args

from controlplane.images.commits import CHECKPOINTS
from controlplane.images.reference import MAX_NAME_CHARS, Reference
from controlplane.images.stored import RegistryImage

# The first part of a repository's name: copies of others' images, those of them that were converted, and what was made
# of sandboxes. Nodes mount converted copies without having read all of them, so nothing else may be among these.
MIRRORED: Final = "mirror"
CONVERTED: Final = "estargz"
COMMITTED: Final = "commits"

# Of a copy: as its source is, or with layers that nodes can mount while they fetch them.
Form = Literal["plain", "estargz"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)


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

    def has_checkpoints(self, repository: str) -> bool:
        """Whether a repository, without the host, is that of an owner's checkpoints."""
        first, _, rest = repository.partition("/")
        return first == COMMITTED and rest.count("/") == 1 and rest.endswith(f"/{CHECKPOINTS}")

    def converts(self, reference: Reference) -> bool:
        """Whether a converted copy is made of an image of this registry: of a commit, by its digest.

        Not of a checkpoint: the next one of a chain replaces its layer, which a converted copy has in another form.
        """
        committed = self.holds(reference) and not self.hides(reference)
        return committed and bool(reference.digest) and not self.has_checkpoints(reference.repository)

    @property
    def converted(self) -> str:
        """The beginning of the names of converted copies."""
        return f"{self.host}/{CONVERTED}/"

    def holds(self, reference: Reference) -> bool:
        """Whether a name is one of this registry's."""
        return reference.registry == self.host

    def hides(self, reference: Reference) -> bool:
        """Whether a name is of a copy, or of anything but a commit: nodes may read it, and no user may name it.

        Whose a copy is, is its source's registry to say; by the name of the copy nobody would be asked.
        """
        return self.holds(reference) and not reference.name.startswith(f"{self.commits}/")

    @property
    def converted_commits(self) -> str:
        """The beginning of the repositories of commits' converted copies, without the host; long ones have others."""
        return f"{CONVERTED}/{_folder(self.host)}/{COMMITTED}/"

    @property
    def copies(self) -> tuple[str, ...]:
        """The beginnings of the names of copies' repositories, without the host."""
        return (f"{MIRRORED}/", f"{CONVERTED}/")

    def repository(self, source: Reference, form: Form = "plain") -> str:
        """The repository of the copies of an image, without the host; no two sources have the same.

        What this registry holds is its own plain copy. A port's colon becomes ``__``, which no host name has.
        """
        if form == "plain" and self.holds(source):
            return source.repository
        folder = MIRRORED if form == "plain" else CONVERTED
        path = f"{folder}/{_folder(source.registry)}/{source.repository}"
        if "[" not in path and len(self.host) + 1 + len(path) <= MAX_NAME_CHARS:
            return path
        return f"{folder}/{hashlib.sha256(source.name.encode()).hexdigest()[:40]}"

    def copy(self, source: Reference, digest: str, form: Form = "plain") -> str:
        """The name by which nodes pull a copy."""
        return f"{self.host}/{self.repository(source, form)}@{digest}"

    def stored_name(self, image: RegistryImage) -> str:
        """The name by which nodes pull what the registry has."""
        return f"{self.host}/{image.repository}@{image.digest}"


def _folder(registry: str) -> str:
    return registry.replace(":", "__")
