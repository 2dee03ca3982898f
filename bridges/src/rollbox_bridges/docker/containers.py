"""The containers of a bridge: by id, by the beginning of one, and by name."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from rollbox import Client, CreateOptions, SandboxError
from rollbox_bridges.docker.container import Container, Made
from rollbox_bridges.docker.creating import Wish
from rollbox_bridges.docker.references import checked_name
from rollbox_bridges.docker.settings import Settings
from rollbox_bridges.docker.words import Refusal, no_such_container

_log = logging.getLogger("rollbox_bridges")
_MOST_START_S: Final = 600.0
# Of those whose sandboxes have ended, as many are told of; the platform bounds the others.
_MOST_DEAD: Final = 1000


class Containers:
    """The containers of one bridge.

    Args:
        client: of their owner.
        settings: of the bridge.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._all: dict[str, Container] = {}
        # A name is taken from the beginning of a create on.
        self._names: dict[str, str] = {}

    async def create(self, made_of: Made, image: str, name: str) -> Container:
        """Create one.

        Args:
            made_of: what it is to be.
            image: as the platform takes it.
            name: "": that of its sandbox.

        Raises:
            Refusal: the name is taken.
            SandboxError: as `Client.create`.
        Cancel safety: nothing is left of a cancelled create.
        """
        wanted = checked_name(name) if name else ""
        self._take(wanted)
        try:
            sandbox = await self._client.create(image, **self._options(made_of.wish, wanted))
        except BaseException:
            self._names.pop(wanted, None)
            raise
        container = Container(sandbox, made_of, wanted or sandbox.id, self._ended)
        self._all[container.id] = container
        self._names[container.name] = container.id
        self._forget_dead()
        return container

    def get(self, text: str) -> Container:
        """Find one.

        Raises:
            Refusal: there is none, or several begin so.
        """
        found = self._all.get(text) or self._all.get(self._names.get(text.removeprefix("/"), ""))
        if found is not None:
            return found
        begin = [one for one in self._all.values() if text and one.id.startswith(text)]
        if len(begin) > 1:
            raise Refusal(400, f"Multiple IDs found with provided prefix: {text[:64]}")
        if not begin:
            raise no_such_container(text)
        return begin[0]

    def listed(self, *, ended: bool, filters: Mapping[str, Sequence[str]]) -> list[Container]:
        """Those that a list may have, the newest first."""
        every = ended or "status" in filters
        found = [one for one in self._all.values() if (every or one.state == "running") and _passes(one, filters)]
        return sorted(found, key=lambda one: -one.times.created)

    def rename(self, container: Container, name: str) -> None:
        """Give one another name.

        Raises:
            Refusal: it is taken, or none.
        """
        wanted = checked_name(name)
        self._take(wanted)
        self._names.pop(container.name, None)
        self._names[wanted], container.name = container.id, wanted

    async def remove(self, container: Container, *, force: bool) -> None:
        """Remove one.

        Raises:
            Refusal: it runs, and is not to be forced.
            SandboxError: the platform did not take it.
        """
        if container.state == "running" and not force:
            raise Refusal(
                409,
                f'cannot remove container "{container.name}": container is running: stop the container before removing '
                "or force remove",
            )
        await container.remove()
        self._forget(container)

    async def prune(self) -> list[str]:
        """Remove all that do not run; returns their ids."""
        gone = [one for one in self._all.values() if one.state in {"exited", "dead", "created"}]
        for one in gone:
            await self.remove(one, force=True)
        return [one.id for one in gone]

    async def aclose(self) -> None:
        """End all of them."""
        for one in self._all.values():
            await one.aclose()
        if self._all:
            report = await self._client.delete(*[one.sandbox.id for one in self._all.values()])
            for sandbox_id, error in report.failed.items():
                _log.warning("%s was not deleted, and ends with its lease: %s", sandbox_id, error)
        self._all.clear()

    def _options(self, wish: Wish, name: str) -> CreateOptions:
        limits = wish.limits
        options: CreateOptions = {
            "labels": wish.platform_labels(name),
            "env": wish.env,
            "user": wish.user or None,
            "pids": limits.pids,
            "disk": limits.disk_bytes,
            "ttl": self._settings.ttl_s,
            "lease": self._settings.lease_s,
            "egress": "offline" if limits.offline else self._settings.egress,
            "start_timeout": _MOST_START_S,
        }
        if limits.memory is not None:
            options["memory"] = limits.memory
        if limits.cpu is not None:
            options["cpu"] = limits.cpu
        return options

    async def _ended(self, container: Container) -> None:
        """Remove one that is to be removed by itself."""
        try:
            await self.remove(container, force=True)
        except SandboxError as error:
            _log.warning("%s was not deleted, and ends with its lease: %s", container.sandbox.id, error)
            self._forget(container)

    def _take(self, name: str) -> None:
        if name and name in self._names:
            raise Refusal(
                409,
                f'Conflict. The container name "/{name}" is already in use by container "{self._names[name]}". '
                "You have to remove (or rename) that container to be able to reuse that name.",
            )
        if name:
            self._names[name] = ""

    def _forget(self, container: Container) -> None:
        self._all.pop(container.id, None)
        if self._names.get(container.name) == container.id:
            del self._names[container.name]

    def _forget_dead(self) -> None:
        dead = [one for one in self._all.values() if one.state == "dead"]
        for one in dead[: max(0, len(dead) - _MOST_DEAD)]:
            self._forget(one)


def _passes(container: Container, filters: Mapping[str, Sequence[str]]) -> bool:
    names, ids, states = filters.get("name"), filters.get("id"), filters.get("status")
    labels = container.settled.labels
    return (
        (not names or any(one.removeprefix("/") in container.name for one in names))
        and (not ids or any(container.id.startswith(one) for one in ids))
        and (not states or container.state in states)
        and all(_labelled(labels, one) for one in filters.get("label", ()))
    )


def _labelled(labels: Mapping[str, str], wanted: str) -> bool:
    key, separator, value = wanted.partition("=")
    return key in labels and (not separator or labels[key] == value)
