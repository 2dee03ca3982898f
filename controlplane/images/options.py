"""How images are resolved, and what a registry is asked; see ``lifecycle.images``."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from controlplane.images.budget import StoreLimit
from controlplane.images.config import ImageConfig
from controlplane.images.copies import Converted, Copied, Copying, Found, Recorded
from controlplane.images.keyring import Credentials, Keyring
from controlplane.images.private import PrivateRegistry
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
        private: where images are copied to before nodes pull them; None: nodes pull them from where they are.
        budget: the most that it may have; with its collector alone.
        recorded_bytes: the most that the recorded copies of an owner may have there; 0: no limit; with its collector
            alone.
        past_full: where it is full, nodes pull an image that all owners may have from where it is.
        plain: registries that control plane and mirror ask by http, at loopback addresses too.
    """

    digests: Mode = "never"
    rewrites: Rewrites = field(default_factory=Rewrites)
    private: PrivateRegistry | None = None
    budget: StoreLimit = field(default_factory=StoreLimit)
    recorded_bytes: int = 0
    past_full: bool = True
    plain: Collection[str] = ()


class Registry(Protocol):
    """Asks registries; ``controlplane.registry`` does. Every failure is a ``Problem``."""

    async def digest(self, reference: Reference, owner: str = "") -> str:
        """The digest that a tag has now, as this owner is told.

        Raises:
            RegistryProblem: it is not given.
        """
        ...

    async def check(
        self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
    ) -> Mapping[str, int]:
        """Checks that machines of these architectures can run the image; its layers for them, with their bytes.

        Args:
            reference: the image.
            digest: of its manifest or index, which is what is checked.
            architectures: as OCI names them (``amd64``), at least one.
            owner: whose credentials are used; empty for the platform's alone.

        Raises:
            Problem: unsupported: they cannot; RegistryProblem: it is not given.
        """
        ...

    async def config(
        self, reference: Reference, digest: str, architectures: Collection[str], owner: str = ""
    ) -> ImageConfig:
        """What an image says of the processes that run from it.

        Args:
            reference: the image.
            digest: of its manifest or index; empty: what its tag means now.
            architectures: of the machines, at least one: the first of an index's images that they would choose.
            owner: whose credentials are used; empty for the platform's alone.

        Raises:
            Problem: unsupported: it is malformed, or for none of them; RegistryProblem: it is not given.
        """
        ...


class Keyrings(Protocol):
    """The owners' credentials for registries."""

    async def of(self, owner: str) -> Keyring:
        """An owner's credentials, and those that all have; of the empty name those alone.

        A pool has those of all owners: an operator has declared it, and each claim from it is judged by its owner's.
        """
        ...

    async def guards(self, reference: Reference) -> bool:
        """Whether any owner has credentials of its own for this image, so that not all owners may have it alike."""
        ...


class Mirror(Protocol):
    """Copies images into the private registry; ``controlplane.registry`` has its client. Failures are ``Problem``s."""

    def copy(
        self,
        source: Reference,
        credentials: Credentials | None,
        repository: str,
        architectures: Collection[str],
        *,
        through: str = "",
        no_room: bool = False,
        recorded: Recorded | None = None,
    ) -> AsyncIterator[Copying | Copied]:
        """Copies an image unless it is there; ``Copied`` is the last of what is told.

        Args:
            source: with a digest; with a tag, ``find`` knows by that tag what was copied last.
            credentials: for its registry; None: none.
            repository: of the private registry, without its host.
            architectures: those of the machines.
            through: the repository of the plain copy, from which a converted one is made; empty: the plain copy itself
                is what is wanted.
            no_room: the private registry is full: what is not there already is not copied.
            recorded: makes a converted copy a recorded one.

        Raises:
            Problem: image_not_found, image_pull_failed, image_store_full, unsupported; ``MirrorAwayError``: the mirror
                does not answer.
        """
        ...

    async def find(self, repository: str, reference: str) -> Found | None:
        """What a tag, or a digest, of the private registry stands for; None: it is not there.

        Raises:
            Problem: image_pull_failed; ``MirrorAwayError``.
        """
        ...

    async def converted(
        self, repository: str, source: str, architectures: Collection[str], whose: str = ""
    ) -> Converted | None:
        """The converted copy of an image; None: there is none.

        Args:
            repository: of converted copies.
            source: the digest of what it was made of.
            architectures: those of the machines.
            whose: of the recorded copies of this owner the one that was tried last.

        Raises:
            Problem: image_pull_failed; ``MirrorAwayError``.
        """
        ...

    async def judge(
        self, repository: str, source: str, architectures: Collection[str], tried: Converted, whose: str = ""
    ) -> None:
        """Keeps whether a sandbox has started from a converted copy, for all control planes to come.

        Args:
            repository: of converted copies.
            source: the digest of what it was made of.
            architectures: those of the machines.
            tried: the copy, with what came of the start.
            whose: the owner of a recorded copy.

        Raises:
            Problem: image_pull_failed; ``MirrorAwayError``.
        """
        ...
