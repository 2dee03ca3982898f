"""``Builds``: makes images from Dockerfiles."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from controlplane.errors import Problem


@dataclass(frozen=True, slots=True)
class BuildWish:
    """What is to be built.

    Attributes:
        dockerfile: its text.
        arguments: values of its ARGs.
        target: the stage that is wanted; empty: the last one.
        context_digest: of the archive of its context.
    """

    dockerfile: str
    arguments: Mapping[str, str]
    target: str
    context_digest: str


@dataclass(frozen=True, slots=True)
class Built:
    """What a build has made.

    Attributes:
        digest: by which ``start`` takes it.
        size_bytes: of the layers that its base has not.
    """

    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BuildNetwork:
    """The network of a sandbox, which the steps of a build have.

    Attributes:
        sandbox_id: of the sandbox; its owner is that of the build.
        address: of its sidecar.
        token: for calls of the sidecar.
        policy: what it reaches, in words that are the same for the same.
    """

    sandbox_id: str
    address: str
    token: str
    policy: str


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A Dockerfile that has been read; clusters have classes of their own, and take those alone.

    Attributes:
        images: those that it reads, as it names them; the caller checks that its owner may have them.
    """

    images: Sequence[str]


@dataclass(frozen=True, slots=True)
class PinnedBuild:
    """A build that can be begun; as ``BuildPlan`` each cluster's own.

    Attributes:
        tag: a hash of all that goes into the image: Dockerfile, context, arguments, target, the images that it reads.
        addresses: from which it is to fetch files itself.
        is_closed: one of its steps is to have no network, whatever the others have.
    """

    tag: str
    addresses: Sequence[str] = field(default=(), kw_only=True)
    is_closed: bool = field(default=False, kw_only=True)


class Builds(Protocol):
    """Makes images from Dockerfiles, which go where commits go (``Commits.place``) and are kept as these are."""

    @property
    def reads_copies(self) -> bool:
        """Whether the names of ``pin`` are those of copies in the private registry, by their digests."""
        ...

    def plan(self, owner: str, wish: BuildWish) -> BuildPlan:
        """Reads a Dockerfile. Cost: no call.

        Raises:
            Problem: invalid_argument; unsupported: it has what cannot be built here; payload_too_large.
        """
        ...

    async def pin(self, plan: BuildPlan, names: Mapping[str, str]) -> PinnedBuild:
        """Finds the images that a Dockerfile reads, and pulls those that are not here.

        Args:
            plan: of this cluster.
            names: by which each of its images is pulled.

        Raises:
            Problem: those of a start from these images.
        """
        ...

    def run(
        self,
        build: PinnedBuild,
        target: str,
        context: BinaryIO,
        secrets: Mapping[str, bytes],
        *,
        max_bytes: int,
        network: BuildNetwork | None = None,
    ) -> AsyncGenerator[str | Built, None]:
        """Builds; tells what the builder says, then, as the last one, what was made.

        A build that fails, or whose iteration is left, leaves nothing: no container, no image, no layer of its own.

        Args:
            build: of this cluster.
            target: the name of the image, with a tag.
            context: the archive.
            secrets: contents by the ids that mounts of the Dockerfile name; they are in no layer.
            max_bytes: the most that the layers may have that its base has not.
            network: that its steps have; None: none.

        Raises:
            Problem: build_failed: a step has failed; payload_too_large; capacity_unavailable: no room for it.
        """
        ...


def without_builds(what: str) -> Problem:
    """The refusal of what takes a builder, where there is none; ``what`` is not possible."""
    needs = "builds.enabled, nodeAgent.enabled and registry.enabled in the chart's values"
    detail = f"{what}: images are built from Dockerfiles on an engine (`rollbox up`), and on Kubernetes with {needs}"
    return Problem("unsupported", detail, value="builds.enabled")
