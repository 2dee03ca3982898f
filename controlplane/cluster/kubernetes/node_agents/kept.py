"""``KeptImages``: the images that were made of sandboxes, as the private registry has them.

An image that has lost its name to a later commit is found by a tag of its own, which its agent has given it first: no
registry lists what has no tag. What a digest stands for never changes, and a checkpoint's tag never moves: either is
asked once.
"""

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Final

from controlplane.cluster.kubernetes.node_agents.registry_api import RegistryApi
from controlplane.cluster.kubernetes.node_agents.registry_session import RegistrySession
from controlplane.cluster.kubernetes.node_agents.remembered import Remembered
from controlplane.cluster.protocol import CommittedImage
from controlplane.errors import Problem
from controlplane.images import Checkpoint, ImageConfig, PrivateRegistry, built_on, own_bytes, parse
from controlplane.settings import PushSettings

# Of images, and of tags of checkpoints: with ten layers each, 30 MiB.
MOST_REMEMBERED: Final = 32_768
_KEPT: Final = re.compile(r"id-([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class _Content:
    """What a digest stands for.

    Attributes:
        layers: the lowest first.
    """

    layers: tuple[str, ...]
    size_bytes: int
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class _Found:
    image: CommittedImage
    layers: tuple[str, ...]


class KeptImages:
    """Lists and removes images of one private registry.

    Args:
        registry: by the name that images have.
        push: the address and the account with which images are removed.
    """

    def __init__(self, registry: PrivateRegistry, push: PushSettings) -> None:
        self._registry = registry
        self._session = RegistrySession(push, "what was made of sandboxes")
        self._contents: Remembered[_Content] = Remembered(MOST_REMEMBERED)
        self._checkpoints: Remembered[str] = Remembered(MOST_REMEMBERED)

    async def below(self, folder: str) -> Sequence[CommittedImage]:
        """See ``KeptImages.below``.

        Cost: a request for a thousand repositories, for each repository, and for each tag that may move; two for each
        image that is new.

        Raises:
            Problem: upstream_timeout: the registry does not answer, or does not list what it has.
        """
        async with self._session.open() as asked:
            repositories = await asked.repositories(folder.partition("/")[2])
            found = [one for name in repositories for one in await self._of(asked, name)]
        bare = {one.image.digest for one in found if not one.image.size_bytes}
        below = built_on({one.image.digest: one.layers for one in found}, bare)
        return [replace(one.image, built_on=below[one.image.digest]) for one in found]

    async def expired(self, before_ms: int) -> Sequence[CommittedImage]:
        """See ``KeptImages.expired``.

        Cost: a request for a thousand repositories, and for each one of checkpoints; what is not over costs none.

        Raises:
            Problem: upstream_timeout: the registry does not answer, or does not list what it has.
        """
        found = []
        async with self._session.open() as asked:
            for repository in await asked.repositories(self._registry.commits.partition("/")[2]):
                if not self._registry.has_checkpoints(repository):
                    continue
                for tag in await asked.tags(repository):
                    one = Checkpoint.read(tag)
                    if one is None or one.expires_at_ms > before_ms:
                        continue
                    if digest := await self._digest(asked, repository, tag):
                        found.append(await self._image(asked, repository, digest, [tag]))
        return [one.image for one in found if one is not None]

    async def digest(self, name: str) -> str:
        """See ``KeptImages.digest``.

        Raises:
            Problem: upstream_timeout: the registry does not answer.
        """
        reference = parse(name)
        async with self._session.open() as asked:
            return await asked.digest(reference.repository, reference.tag)

    async def config(self, name: str) -> ImageConfig | None:
        """What an image that was made of a sandbox says of its processes; None: the name is of another registry.

        Cost: two or three requests.

        Raises:
            Problem: image_not_found; unsupported: it is malformed; upstream_timeout: the registry does not answer.
        """
        reference = parse(name)
        if not self._registry.holds(reference):
            return None
        async with self._session.open() as asked:
            digest = reference.digest or await asked.digest(reference.repository, reference.tag)
            manifest = await asked.json(f"{reference.repository}/manifests/{digest}") if digest else None
            if manifest is None:
                raise Problem("image_not_found", f"the private registry has no {name}", option="image")
            config = await asked.json(f"{reference.repository}/blobs/{manifest['config']['digest']}") or {}
        return ImageConfig.read(name, digest, config, config.get("config"))

    async def remove(self, image: CommittedImage) -> None:
        """See ``KeptImages.remove``; the registry's garbage collection frees what only it had.

        Raises:
            Problem: upstream_timeout: the registry does not answer, or does not remove it.
        """
        path = f"{image.name.partition('/')[2]}/manifests/{image.digest}"
        async with self._session.open() as asked:
            await asked.call("DELETE", path, none=(HTTPStatus.NOT_FOUND,))
        # A tag that is listed all the same is asked again.
        repository = image.name.partition("/")[2]
        for tag in image.tags:
            self._checkpoints.forget(f"{repository}:{tag}")

    async def _of(self, asked: RegistryApi, repository: str) -> Sequence[_Found]:
        tags = await asked.tags(repository)
        digests = {f"sha256:{kept[1]}": list[str]() for tag in tags if (kept := _KEPT.fullmatch(tag))}
        for tag in tags:
            if not _KEPT.fullmatch(tag) and (digest := await self._digest(asked, repository, tag)):
                digests.setdefault(digest, []).append(tag)
        found = await asyncio.gather(*(self._image(asked, repository, one, digests[one]) for one in digests))
        return [one for one in found if one is not None]

    async def _digest(self, asked: RegistryApi, repository: str, tag: str) -> str:
        """What a tag that was listed stands for."""
        if not (self._registry.has_checkpoints(repository) and Checkpoint.read(tag)):
            return await asked.digest(repository, tag)
        # The same tag may be in several repositories: who pushes there chooses it.
        name = f"{repository}:{tag}"
        known = self._checkpoints.get(name) or await asked.digest(repository, tag)
        if known:
            self._checkpoints.put(name, known)
        return known

    async def _image(self, asked: RegistryApi, repository: str, digest: str, tags: Sequence[str]) -> _Found | None:
        content = self._contents.get(digest)
        if content is None and (content := await _content(asked, repository, digest)):
            self._contents.put(digest, content)
        if content is None:
            return None
        name = f"{self._registry.host}/{repository}"
        image = CommittedImage(name, tuple(sorted(tags)), digest, content.size_bytes, content.created_at_ms)
        return _Found(image, content.layers)


async def _content(asked: RegistryApi, repository: str, digest: str) -> _Content | None:
    """Reads what a digest stands for; None: it is gone."""
    manifest = await asked.json(f"{repository}/manifests/{digest}")
    if manifest is None:
        return None
    config = await asked.json(f"{repository}/blobs/{manifest['config']['digest']}") or {}
    created = datetime.fromisoformat(str(config.get("created") or "1970-01-01T00:00:00Z"))
    # Images share most of their layers.
    layers = tuple(sys.intern(str(one["digest"])) for one in manifest["layers"])
    return _Content(layers, own_bytes(manifest), int(created.timestamp() * 1000))
