"""How images are resolved, and what a registry is asked; see ``lifecycle.images``."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol

from controlplane.images.reference import Reference
from controlplane.images.rewrite import Rewrites

Mode = Literal["auto", "required", "never"]


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How images are resolved.

    Attributes:
        digests: ``auto``: names that cannot be resolved run as nodes understand them; ``required``: they are refused;
            ``never``: no registry is asked.
        rewrites: from where images are pulled.
    """

    digests: Mode = "never"
    rewrites: Rewrites = field(default_factory=Rewrites)


class Registry(Protocol):
    """Asks registries; ``controlplane.registry`` does. Every failure is a ``Problem``."""

    async def digest(self, reference: Reference) -> str:
        """The digest that a tag has now.

        Raises:
            RegistryProblem: it is not given.
        """
        ...

    async def check(self, reference: Reference, digest: str, architectures: Collection[str]) -> None:
        """Checks that machines of these architectures can run the image.

        Raises:
            Problem: unsupported: they cannot; RegistryProblem: it is not given.
        """
        ...
