"""Images: those that clients have named here, and what the platform says of a name."""

from __future__ import annotations

import fnmatch
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rollbox import Client, NodeImage, Sandbox, errors
from rollbox_bridges.docker.references import ARCHITECTURE, familiar, image_id, repository_of
from rollbox_bridges.docker.words import Refusal

# Beyond so many, the name that was used least recently is asked for again.
_NEVER: Final = "1970-01-01T00:00:00Z"
_MOST: Final = 10_000
_OF_IMAGE: Final = frozenset({"image_not_found", "image_pull_failed", "invalid_argument", "permission_denied"})


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is known here.

    Attributes:
        name: as Docker's clients show it.
        source: what a create is given.
        id: of it here.
        size_bytes: 0: not told.
        digest: "": not told.
    """

    name: str
    source: str
    id: str
    size_bytes: int = 0
    digest: str = ""


class Images:
    """The images of one bridge.

    Args:
        client: of the platform.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[str, Image] = OrderedDict()

    def source(self, text: str) -> str:
        """What a create is given for a name or an id."""
        known = self._find(text)
        return text if known is None else known.source

    def keep(self, name: str, source: str = "") -> Image:
        """Know a name; with a source, as another name of that."""
        image = Image(familiar(name), source or name, image_id(name))
        self._known[image.name] = image
        self._known.move_to_end(image.name)
        self._bound()
        return image

    async def get(self, text: str) -> Image:
        """An image that was pulled here, or is on the platform's machines.

        Raises:
            Refusal: there is none.
        """
        known = self._find(text)
        if known is not None:
            return known
        if text.startswith("sha256:"):
            raise Refusal(404, f"No such image: {text[:200]}")
        found = await self._asked(text)
        if found != "here":
            raise Refusal(404, f"No such image: {text[:200]}")
        return self.keep(text)

    async def pull(self, name: str) -> Image:
        """Have an image on one of the platform's machines, and know it.

        Raises:
            Refusal: there is none, or the platform does not take it.
            SandboxError: it could not be fetched.
        """
        known = self._find(name)
        source = name if known is None else known.source
        if await self._asked(source) != "here":
            with suppress(errors.Unsupported):
                (await self._client.prefetch(source, nodes=1)).require()
        return self.keep(name, source)

    async def listed(self, references: Iterable[str] = ()) -> list[Image]:
        """Those that are known here and those on the platform's machines, by name."""
        for one in await self._on_nodes():
            self._known[one.name] = one
        self._bound()
        found = dict(self._known)
        wanted = [familiar(one) if "*" not in one else one for one in references]
        named = [one for one in found.values() if not wanted or any(_matches(one.name, pattern) for pattern in wanted)]
        return sorted(named, key=lambda one: one.name)

    async def remove(self, text: str) -> list[dict[str, str]]:
        """Remove an image that was made of a container, or forget a name.

        Raises:
            Refusal: there is none.
            SandboxError: it is still needed.
        """
        image = await self.get(text)
        removed = await self._removed(image)
        self._known.pop(image.name, None)
        return [{"Untagged": image.name}, *([{"Deleted": image.id}] if removed else [])]

    async def commit(self, sandbox: Sandbox, name: str) -> Image:
        """Make an image of a container's files.

        Raises:
            SandboxError: as `Sandbox.commit`.
        """
        if name:
            return self.keep(name, str(await sandbox.commit(familiar(name))))
        made = await sandbox.commit(checkpoint=True)
        return self.keep(f"checkpoint:{made.id}", str(made))

    async def _removed(self, image: Image) -> bool:
        if image.source == image.name:
            return False
        try:
            return await self._client.remove_image(image.source)
        except (errors.Unsupported, errors.InvalidArgument):
            return False

    def _bound(self) -> None:
        while len(self._known) > _MOST:
            self._known.popitem(last=False)

    def _find(self, text: str) -> Image | None:
        known = self._known.get(familiar(text))
        if known is None and len(text) >= 12:
            wanted = text if text.startswith("sha256:") else f"sha256:{text}"
            known = next((one for one in self._known.values() if one.id.startswith(wanted)), None)
        return known

    async def _asked(self, name: str) -> str:
        """Whether an image is "here", "elsewhere" or "unknown".

        Raises:
            Refusal: the platform says that it cannot be had.
        """
        report = await self._client.preflight(name)
        for blocker in report.blockers:
            if blocker.code in _OF_IMAGE:
                raise Refusal(404, f"manifest for {name[:200]} not found: {blocker.detail}")
        return report.image

    async def _on_nodes(self) -> list[Image]:
        try:
            there = await self._client.images()
        except (errors.Unsupported, errors.PermissionDenied):
            return []
        return [_told(one, name) for one in there for name in one.names if "@" not in name]


def body(image: Image) -> dict[str, Any]:
    """An image as an inspect tells it. Its command, variables and layers are not known here."""
    config: dict[str, Any] = {
        "Image": image.name,
        "Env": [],
        "Cmd": None,
        "Entrypoint": None,
        "Labels": {},
        "WorkingDir": "",
        "User": "",
    }
    return {**row(image), "Os": "linux", "Architecture": ARCHITECTURE, "Config": config, "Created": _NEVER}


def row(image: Image) -> dict[str, Any]:
    """An image of a list."""
    digest = f"{repository_of(image.name)[0]}@{image.digest}" if image.digest else ""
    return {
        "Id": image.id,
        "ParentId": "",
        "RepoTags": [image.name],
        "RepoDigests": [digest] if digest else [],
        "Created": 0,
        "Size": image.size_bytes,
        "SharedSize": -1,
        "Labels": {},
        "Containers": -1,
    }


def _told(one: NodeImage, name: str) -> Image:
    return Image(familiar(name), name, image_id(name), one.size_bytes, one.digest)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern) or repository_of(name)[0] == pattern
