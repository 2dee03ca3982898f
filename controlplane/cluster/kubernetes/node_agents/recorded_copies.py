"""``RecordedCopies``: the recorded copies of a private registry whose files nobody here sees, by its API alone.

What a digest stands for never changes, and is asked once; what a tag stands for is asked each time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from controlplane.cluster.kubernetes.node_agents.registry_api import RegistryApi
from controlplane.cluster.kubernetes.node_agents.registry_session import RegistrySession
from controlplane.cluster.kubernetes.node_agents.remembered import Remembered
from controlplane.errors import Problem
from controlplane.images import CONVERTED, RegistryImage, is_copy, offers, recorded_owner
from controlplane.settings import PushSettings

# With ten layers each, 30 MiB.
MOST_REMEMBERED: Final = 16_384
# So many repositories are asked for at once: the session's connections.
ASKED_AT_ONCE: Final = 16

# A registry that is told to delete nothing, or an account that may not: no other copy is removed either.
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED)

Opening = Callable[[], AbstractAsyncContextManager[RegistryApi]]


@dataclass(frozen=True, slots=True)
class _Content:
    """What a manifest names.

    Attributes:
        parts: configuration and layers, or the manifests of an index with all of theirs: bytes by digest.
        manifests: those of an index.
    """

    parts: Mapping[str, int]
    manifests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Tags:
    """The tags of one repository that has a recorded copy, by what they stand for."""

    repository: str
    digests: Mapping[str, str]

    def of(self, digest: str) -> list[str]:
        return [tag for tag, one in self.digests.items() if one == digest]


class RecordedCopies:
    """See ``images.RecordedList``.

    Args:
        opening: opens the registry's API, as an account that may list and remove.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._contents: Remembered[_Content] = Remembered(MOST_REMEMBERED)

    async def all(self) -> list[RegistryImage]:
        """See ``RecordedList.all``."""
        async with self._opening() as asked:
            found = [await self._recorded(asked, tags) async for tags in _repositories(asked)]
        return [image for images in found for image in images]

    async def of(self, owner: str) -> list[RegistryImage]:
        """See ``RecordedList.of``."""

        def theirs(tag: str) -> bool:
            return recorded_owner(tag) == owner or _common(tag)

        found = []
        async with self._opening() as asked:
            async for tags in _repositories(asked, theirs):
                # Neither counted nor removed is what has the content of the copy of all owners.
                own = dict.fromkeys(one for one in tags.digests.values() if not any(map(_common, tags.of(one))))
                found += [await self._image(asked, tags, digest) for digest in own]
        return [one for one in found if one is not None]

    async def there(self, repository: str, digest: str) -> bool:
        """See ``RecordedList.there``."""
        async with self._opening() as asked:
            return bool(await asked.digest(repository, digest))

    async def remove(self, repository: str, digest: str) -> bool:
        """See ``RecordedList.remove``.

        First the verdicts that lead to the copy, last what an index had: what is killed in between has nothing that a
        start is given, and the next look goes on with it.
        """
        async with self._opening() as asked:
            tags = await _of(asked, repository, await asked.tags(repository), lambda _: True)
            contents = {one: await self._content(asked, repository, one) for one in {digest, *tags.digests.values()}}
            verdicts = {tags.digests[tag] for tag in tags.digests if offers(tag)}
            for one in sorted(verdicts):
                if (content := contents[one]) is not None and content.manifests == (digest,):
                    await _delete(asked, repository, one)
            there = await _delete(asked, repository, digest)
            known = contents[digest]
            kept = {
                child for one, content in contents.items() if content and one != digest for child in content.manifests
            } | {one for one in tags.digests.values() if one != digest}
            for child in known.manifests if known is not None else ():
                if child not in kept:
                    await _delete(asked, repository, child)
        return there

    async def _recorded(self, asked: RegistryApi, tags: _Tags) -> list[RegistryImage]:
        offered: set[str] = set()
        for tag, digest in tags.digests.items():
            # An index with the copy as its one entry.
            if offers(tag) and (verdict := await self._content(asked, tags.repository, digest)) is not None:
                offered.update(verdict.manifests)
        found = []
        for digest in dict.fromkeys(one for tag, one in tags.digests.items() if is_copy(tag)):
            if any(map(_common, tags.of(digest))):
                continue  # its list changed nothing: the copy of all owners has the same content
            if (image := await self._image(asked, tags, digest, offered=digest in offered)) is not None:
                found.append(image)
        return found

    async def _image(
        self, asked: RegistryApi, tags: _Tags, digest: str, *, offered: bool = False
    ) -> RegistryImage | None:
        content = await self._content(asked, tags.repository, digest)
        if content is None:
            return None
        owners = sorted({owner for tag in tags.of(digest) if (owner := recorded_owner(tag))})
        return RegistryImage(tags.repository, digest, content.parts, 0, recorded=True, owners=owners, offered=offered)

    async def _content(self, asked: RegistryApi, repository: str, digest: str) -> _Content | None:
        """What a digest stands for; None: it is gone."""
        if (known := self._contents.get(digest)) is not None:
            return known
        manifest = await asked.json(f"{repository}/manifests/{digest}")
        if manifest is None:
            return None
        manifests = tuple(str(one["digest"]) for one in manifest.get("manifests") or ())
        named = [*(manifest.get("manifests") or ()), *(manifest.get("layers") or ())]
        parts = {str(one["digest"]): int(one["size"]) for one in [*named, manifest.get("config")] if one}
        for child in manifests:
            below = await self._content(asked, repository, child)
            parts.update({} if below is None else below.parts)
            if below is None:
                return _Content(parts, manifests)  # it may be that of a verdict, whose copy is gone
        content = _Content(parts, manifests)
        self._contents.put(digest, content)
        return content


def recorded_copies(push: PushSettings) -> RecordedCopies:
    """Those of the registry that images of sandboxes are put into, by the same account."""
    return RecordedCopies(RegistrySession(push, "its recorded copies").open)


def _common(tag: str) -> bool:
    """Whether it is that of the copy of all owners."""
    return is_copy(tag) and recorded_owner(tag) is None


async def _repositories(asked: RegistryApi, wanted: Callable[[str], bool] | None = None) -> AsyncIterator[_Tags]:
    """The repositories that have a recorded copy, with what their tags stand for.

    Args:
        asked: the registry.
        wanted: the tags that are asked for; None: all of a repository that has a recorded copy.
    """
    names = await asked.repositories(CONVERTED)
    for at in range(0, len(names), ASKED_AT_ONCE):
        some = names[at : at + ASKED_AT_ONCE]
        for repository, tags in zip(some, await asyncio.gather(*map(asked.tags, some)), strict=True):
            ours: Callable[[str], bool] = wanted or (lambda _: True)
            if any(recorded_owner(tag) is not None and ours(tag) for tag in tags):
                yield await _of(asked, repository, tags, ours)


async def _of(asked: RegistryApi, repository: str, tags: Iterable[str], wanted: Callable[[str], bool]) -> _Tags:
    mine = [tag for tag in tags if wanted(tag) and (is_copy(tag) or offers(tag))]
    digests: list[str] = []
    for at in range(0, len(mine), ASKED_AT_ONCE):
        digests += await asyncio.gather(*(asked.digest(repository, tag) for tag in mine[at : at + ASKED_AT_ONCE]))
    return _Tags(repository, {tag: digest for tag, digest in zip(mine, digests, strict=True) if digest})


async def _delete(asked: RegistryApi, repository: str, digest: str) -> bool:
    path = f"{repository}/manifests/{digest}"
    status, _, _ = await asked.call("DELETE", path, none=(HTTPStatus.NOT_FOUND, *_REFUSED))
    if status in _REFUSED:
        raise Problem(
            "unsupported", f"the registry answers {status} to DELETE {path}: it, or its account, may not remove"
        )
    return status != HTTPStatus.NOT_FOUND
