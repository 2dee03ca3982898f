"""``LazyNodes``: sandboxes that read their image while their node fetches it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from controlplane.model import SandboxSpec


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """What a sandbox has opened of its image.

    Attributes:
        paths: in the order of the first times.
        more: these are not all.
    """

    paths: tuple[str, ...] = ()
    more: bool = False


class LazyNodes(Protocol):
    """Nodes that mount images before they have fetched them."""

    def takes(self, spec: SandboxSpec) -> bool:
        """Whether a sandbox of it would read its image while its node fetches that. Cost: no call."""
        ...

    def kept_off(self, spec: SandboxSpec) -> frozenset[str]:
        """The nodes that a sandbox of it, which ``takes``, may not come to in spite of their labels. Cost: no call."""
        ...

    @property
    def trouble(self) -> str:
        """Why some nodes do not mount images now that they could mount; empty: they do. Cost: no call."""
        ...

    def broken(self, digest: str) -> str:
        """Why a sandbox could not read files of a lazily mounted image; empty: none is known. Cost: no call.

        Args:
            digest: by which nodes have it.
        """
        ...

    @property
    def records(self) -> bool:
        """Whether the nodes tell which files of its image a sandbox opens."""
        ...

    async def opened(self, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        """Which files of its image a sandbox opens until something is over, where nodes tell (``records``).

        Those that it has open are told first.

        Args:
            sandbox_id: reads its image while its node fetches that.
            during: is called once it has begun; what it raises is raised.

        Raises:
            Problem: unsupported: its node does not tell; capacity_unavailable: its node records others;
                sandbox_lost: it does not run; upstream_timeout: its node's parts do not answer.
        """
        ...
