"""``DatasetSpec``: a data set as an operator declares it: where its files are, and who may mount them. Read only."""

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from controlplane.model.base import Closed
from controlplane.model.spec import ImageName

MOST_OWNERS: Final = 1_000
# Owners with a colon in their names are parts of the platform.
_Owner = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^:,/\x00-\x1f\x7f]*$")]


def _folder(path: str) -> str:
    parts = path.split("/")[1:]
    if path and (not path.startswith("/") or any(part in ("", ".", "..") for part in parts) or ":" in path):
        raise ValueError(f"{path[:128]!r} must be an absolute path, without '.', '..', ':' or a slash at the end")
    return path


Folder = Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$"), AfterValidator(_folder)]


class DatasetSpec(Closed):
    """Where the files of a data set are: exactly one source.

    Attributes:
        folder: of this machine, or of every node that its sandboxes may come to.
        claim: a PersistentVolumeClaim beside the sandboxes that many pods may read (Kubernetes).
        image: an OCI image or artifact, mounted as a volume (Kubernetes).
        owners: who may mount it; empty: everybody.
    """

    folder: Folder = Field(default="", exclude_if=lambda folder: not folder)
    claim: Annotated[str, StringConstraints(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")] = Field(
        default="", exclude_if=lambda claim: not claim
    )
    image: ImageName | None = Field(default=None, exclude_if=lambda image: image is None)
    owners: list[_Owner] = Field(default_factory=list, max_length=MOST_OWNERS, exclude_if=lambda owners: not owners)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(map(bool, (self.folder, self.claim, self.image))) != 1:
            raise ValueError("give one of folder, claim and image")
        return self

    @property
    def source(self) -> str:
        """Where its files are, in words."""
        if self.folder:
            return f"folder {self.folder}"
        return f"claim {self.claim}" if self.claim else f"image {self.image}"

    def allows(self, owner: str) -> bool:
        """Whether an owner may mount it."""
        return not self.owners or owner in self.owners
