"""``Configs``: what images say of the processes that run from them, as owners may know it."""

from collections.abc import Collection
from typing import Final, Protocol

from controlplane.errors import Problem
from controlplane.images import ImageConfig, Reference, Registry, parse
from controlplane.lifecycle.images.ownership import Ownership
from controlplane.lifecycle.images.pins import Pin

# Of nodes that are not known yet.
_USUAL: Final = frozenset({"amd64"})


class Machines(Protocol):
    """The part of ``Cluster`` that is asked."""

    async def config(self, name: str) -> ImageConfig | None:
        """What an image says that the cluster has itself."""
        ...

    def architectures(self) -> Collection[str]:
        """Those of the machines."""
        ...


class Names(Protocol):
    """The part of ``Images`` that is asked."""

    async def resolved(self, owner: str, name: str) -> Pin:
        """What a name means now for an owner."""
        ...

    async def whose(self, owner: str, reference: Reference) -> str:
        """The owner for whom a registry is asked; empty: all are told the same."""
        ...


class Configs:
    """Tells the configurations of images.

    Args:
        machines: have images themselves.
        registry: asks the others' registries; None: none is asked.
        names: know what a name means.
        ownership: knows whose an image is.
    """

    def __init__(self, machines: Machines, registry: Registry | None, names: Names, ownership: Ownership) -> None:
        self._machines = machines
        self._registry = registry
        self._names = names
        self._ownership = ownership

    async def of(self, owner: str, name: str) -> ImageConfig:
        """What the image that a create of this name would start from says of its processes; nothing is pulled.

        Args:
            owner: who asks.
            name: as for a create.

        Raises:
            Problem: permission_denied, image_not_found: the owner may not have it, or there is none where nothing is
                pulled from; unsupported: it cannot run here; image_pull_failed: its registry does not say.
        """
        self._ownership.check(owner, name)
        pin = await self._names.resolved(owner, name)
        if (found := await self._machines.config(pin.name)) is not None:
            return found
        if self._registry is None:
            raise Problem("image_not_found", f"{name} is not on this machine: prefetch it, then ask", image=name)
        reference = parse(pin.name)
        architectures = self._machines.architectures() or _USUAL
        whose = await self._names.whose(owner, reference)
        return await self._registry.config(reference, pin.digest, architectures, whose)
