"""Images: those that clients have named here, and what the platform says of a name."""

from __future__ import annotations

import fnmatch
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rollbox import BuiltImage, Client, ImageConfig, NodeImage, Sandbox, SandboxError, errors
from rollbox_bridges.docker.references import familiar, image_id, is_id, repository_of
from rollbox_bridges.docker.words import Refusal
from rollbox_bridges.removals import removed

# Beyond so many, the name that was used least recently is asked for again.
_MOST: Final = 10_000
_SHORTEST_ID: Final = 12
_OF_IMAGE: Final = frozenset({"image_not_found", "image_pull_failed", "invalid_argument", "permission_denied"})


@dataclass(frozen=True, slots=True)
class Image:
    """An image by one of its names that are known here.

    Attributes:
        name: as Docker's clients show it.
        source: what a create is given.
        id: its digest; where that is not told, one of its name.
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

    def keep(self, name: str, source: str = "", digest: str = "") -> Image:
        """Know a name.

        Args:
            name: it.
            source: the image that it is another name of; "": it is that name itself.
            digest: of the image; "": not known.
        """
        shown = familiar(name)
        image = Image(shown, source or name, digest or image_id(source or name), digest=digest)
        self._known[image.name] = image
        self._known.move_to_end(image.name)
        self._bound()
        return image

    async def config(self, source: str) -> ImageConfig | None:
        """What an image says of its processes, which is fetched if it is not there; None: the platform cannot tell.

        Raises:
            Refusal: there is none, or the platform does not take it.
            SandboxError: it could not be fetched.
        """
        try:
            return await self._client.image_config(source)
        except errors.ImageNotFound:
            # On an engine that is told of what is not there yet, too.
            await self._fetch(source)
        except errors.ImagePullFailed:
            # The platform's machines may reach a registry that does not answer it; the create says why not.
            with suppress(Refusal, SandboxError):
                await self._fetch(source)
        except errors.Unsupported:
            return None
        return await self.told(source)

    async def told(self, source: str) -> ImageConfig | None:
        """What an image says of its processes as far as that is known now; None: it is not."""
        try:
            return await self._client.image_config(source)
        except (errors.ImageNotFound, errors.ImagePullFailed, errors.Unsupported):
            return None

    async def get(self, text: str) -> Image:
        """An image that was pulled here, or is on the platform's machines.

        Raises:
            Refusal: there is none.
        """
        known = self._find(text)
        if known is not None:
            return known
        if is_id(text):
            raise Refusal(404, f"No such image: {text[:200]}")
        found = await self._asked(text)
        if found != "here":
            raise Refusal(404, f"No such image: {text[:200]}")
        return await self._learned(text, text)

    async def pull(self, name: str) -> Image:
        """Have an image on one of the platform's machines, and know it.

        Raises:
            Refusal: there is none, or the platform does not take it.
            SandboxError: it could not be fetched.
        """
        source = self.source(name)
        await self._fetch(source)
        return await self._learned(name, source)

    async def listed(self, references: Iterable[str] = ()) -> list[Image]:
        """Those that are known here and those on the platform's machines, by name."""
        for one in await self._on_nodes():
            self._known[one.name] = one
        self._bound()
        found = dict(self._known)
        wanted = [familiar(one) if "*" not in one else one for one in references]
        named = [one for one in found.values() if not wanted or any(_matches(one.name, pattern) for pattern in wanted)]
        return sorted(named, key=lambda one: one.name)

    def tags(self, image: Image) -> list[str]:
        """All names that mean an image, that one first; that which it has at the platform where it has no other."""
        others = (one.name for one in self._known.values() if one.source == image.source or one.id == image.id)
        names = list(dict.fromkeys([image.name, *others]))
        return [one for one in names if one != _own_name(image)] or names

    async def remove(self, text: str, *, force: bool) -> list[dict[str, str]]:
        """Forget a name; the last one of an image that was made here takes that along.

        Args:
            text: a name, or an id: all its names.
            force: whether an id may have several names.

        Raises:
            Refusal: there is none.
            SandboxError: it is still needed.
        """
        image = await self.get(text)
        tags = self.tags(image)
        gone = [image.name] if image.name == familiar(text) else tags
        if len(gone) > 1 and not force:
            raise Refusal(
                409,
                f"conflict: unable to delete {text[:200]} (must be forced) - image is referenced in multiple "
                f"repositories: {', '.join(gone)[:500]}",
            )
        removed = {*tags} <= {*gone} and await self._removed(image)
        for name in [*gone, *([_own_name(image)] if removed else [])]:
            self._known.pop(familiar(name), None)
        return [*({"Untagged": name} for name in gone), *([{"Deleted": image.id}] if removed else [])]

    async def commit(self, sandbox: Sandbox, name: str) -> Image:
        """Make an image of a container's files.

        Raises:
            SandboxError: as `Sandbox.commit`.
        """
        if name:
            made = await sandbox.commit(familiar(name))
            return self.keep(name, str(made), made.digest)
        checkpoint = await sandbox.commit(checkpoint=True)
        return self.keep(f"checkpoint:{checkpoint.id}", str(checkpoint), checkpoint.digest)

    def built(self, image: BuiltImage, tags: Iterable[str]) -> Image:
        """Know an image that was built, by its tags; without any, by the name that it has at the platform."""
        names = list(tags) or [str(image).partition("@")[0]]
        return [self.keep(name, str(image), image.digest) for name in names][-1]

    async def _learned(self, name: str, source: str) -> Image:
        config = await self.told(source)
        return self.keep(name, source, config.digest if config else "")

    async def _fetch(self, source: str) -> None:
        if await self._asked(source) != "here":
            with suppress(errors.Unsupported):
                (await self._client.prefetch(source, nodes=1)).require()

    async def _removed(self, image: Image) -> bool:
        if image.source == image.name:
            return False
        try:
            return await removed(self._client, image.source)
        except (errors.Unsupported, errors.InvalidArgument):
            return False

    def _bound(self) -> None:
        while len(self._known) > _MOST:
            self._known.popitem(last=False)

    def _find(self, text: str) -> Image | None:
        known = self._known.get(familiar(text))
        if known is None and len(text) >= _SHORTEST_ID:
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
                # Clients tell an image that is not there by these words.
                raise Refusal(404, f"No such image: {name[:200]}: {blocker.detail}")
        return report.image

    async def _on_nodes(self) -> list[Image]:
        try:
            there = await self._client.images()
        except (errors.Unsupported, errors.PermissionDenied):
            return []
        return [_of_node(one, name) for one in there for name in one.names if "@" not in name]


def _own_name(image: Image) -> str:
    """The name that what was made here has at the platform."""
    return image.source.partition("@")[0] if "@" in image.source else ""


def _of_node(one: NodeImage, name: str) -> Image:
    return Image(familiar(name), name, one.digest or image_id(name), one.size_bytes, one.digest)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern) or repository_of(name)[0] == pattern
