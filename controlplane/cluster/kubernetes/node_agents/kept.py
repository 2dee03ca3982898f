"""``KeptImages``: the images that were made of sandboxes, as the private registry has them.

An image that has lost its name to a later commit is found by a tag of its own, which its agent has given it first: no
registry lists what has no tag.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from controlplane.cluster.protocol import CommittedImage
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, parse
from controlplane.settings import PushSettings

WITHIN_S: Final = 60.0
ASKED_AT_ONCE: Final = 16
# Manifests and configurations; an image with the most layers that nodes take has a tenth of it.
MAX_BYTES: Final = 4 << 20
PAGE: Final = 1000
_KEPT: Final = re.compile(r"id-([0-9a-f]{64})")
_MANIFESTS: Final = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True, slots=True)
class _Found:
    image: CommittedImage
    own_layer: str
    below: frozenset[str]


class KeptImages:
    """Lists and removes images of one private registry.

    Args:
        registry: by the name that images have.
        push: the address and the account with which images are removed.
    """

    def __init__(self, registry: PrivateRegistry, push: PushSettings) -> None:
        self._registry = registry
        self._push = push

    async def list(self, folder: str) -> Sequence[CommittedImage]:
        """See ``Cluster.committed_images``. Cost: some requests for each image.

        Raises:
            Problem: upstream_timeout: the registry does not answer, or does not list what it has.
        """
        async with self._open() as asked:
            repositories = await asked.repositories(folder.partition("/")[2])
            found = [one for name in repositories for one in await self._of(asked, name)]
        return [replace(one.image, built_on=_below(one, found)) for one in found]

    async def digest(self, name: str) -> str:
        """See ``Cluster.committed_digest``.

        Raises:
            Problem: upstream_timeout: the registry does not answer.
        """
        reference = parse(name)
        async with self._open() as asked:
            return await asked.digest(reference.repository, reference.tag)

    async def remove(self, image: CommittedImage) -> None:
        """See ``Cluster.remove_committed``; the registry's garbage collection frees what only it had.

        Raises:
            Problem: upstream_timeout: the registry does not answer, or does not remove it.
        """
        path = f"{image.name.partition('/')[2]}/manifests/{image.digest}"
        async with self._open() as asked:
            await asked.call("DELETE", path, none=(HTTPStatus.NOT_FOUND,))

    async def _of(self, asked: "_Asked", repository: str) -> Sequence[_Found]:
        tags = await asked.tags(repository)
        digests = {f"sha256:{kept[1]}": list[str]() for tag in tags if (kept := _KEPT.fullmatch(tag))}
        for tag in tags:
            if not _KEPT.fullmatch(tag) and (digest := await asked.digest(repository, tag)):
                digests.setdefault(digest, []).append(tag)
        found = await asyncio.gather(*(self._image(asked, repository, one, digests[one]) for one in digests))
        return [one for one in found if one is not None]

    async def _image(self, asked: "_Asked", repository: str, digest: str, tags: Sequence[str]) -> _Found | None:
        manifest = await asked.json(f"{repository}/manifests/{digest}")
        if manifest is None:
            return None
        config = await asked.json(f"{repository}/blobs/{manifest['config']['digest']}") or {}
        layers = [str(one["digest"]) for one in manifest["layers"]]
        created = datetime.fromisoformat(str(config.get("created") or "1970-01-01T00:00:00Z"))
        name, size_bytes = f"{self._registry.host}/{repository}", int(manifest["layers"][-1]["size"])
        image = CommittedImage(name, tuple(sorted(tags)), digest, size_bytes, int(created.timestamp() * 1000))
        return _Found(image, layers[-1], frozenset(layers[:-1]))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator["_Asked"]:
        # Read each time: the Secret may have been renewed.
        account = await asyncio.to_thread(self._push.account_file.read_text)
        username, _, password = account.strip().partition(":")
        trusted = await asyncio.to_thread(ssl.create_default_context, cafile=self._push.authority_file)
        async with aiohttp.ClientSession(
            f"https://{self._push.address}/v2/",
            connector=aiohttp.TCPConnector(ssl=trusted, limit=ASKED_AT_ONCE),
            headers={"Authorization": aiohttp.encode_basic_auth(username, password)},
            timeout=aiohttp.ClientTimeout(total=WITHIN_S),
        ) as session:
            try:
                yield _Asked(session)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
                detail = (
                    f"the private registry {self._push.address} does not tell what was made of sandboxes: {error!r}"
                )
                raise Problem("upstream_timeout", detail) from error


class _Asked:
    """A registry's API."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def repositories(self, folder: str) -> Sequence[str]:
        """Those below a folder. All of one first part come one after the other, whatever a registry sorts by."""
        found: list[str] = []
        last, top = folder, f"{folder.partition('/')[0]}/"
        while True:
            _, _, text = await self.call("GET", f"_catalog?n={PAGE}&last={quote(last, safe='')}")
            page = [str(one) for one in json.loads(text)["repositories"] or ()]
            found += [one for one in page if one.startswith(f"{folder}/")]
            if len(page) < PAGE or not page[-1].startswith(top):
                return found
            last = page[-1]

    async def tags(self, repository: str) -> Sequence[str]:
        """The tags of a repository; none: it is gone."""
        read = await self.json(f"{repository}/tags/list")
        return [str(one) for one in (read or {}).get("tags") or ()]

    async def digest(self, repository: str, tag: str) -> str:
        """What a tag stands for; empty: it is gone."""
        status, headers, _ = await self.call("HEAD", f"{repository}/manifests/{tag}", none=(HTTPStatus.NOT_FOUND,))
        return str(headers["Docker-Content-Digest"]) if status == HTTPStatus.OK else ""

    async def json(self, path: str) -> dict[str, Any] | None:
        """What is at a path; None: nothing."""
        status, _, text = await self.call("GET", path, none=(HTTPStatus.NOT_FOUND,))
        read: dict[str, Any] | None = json.loads(text) if status == HTTPStatus.OK else None
        return read

    async def call(self, method: str, path: str, *, none: Sequence[int] = ()) -> tuple[int, Any, bytes]:
        """Status, headers and body of an answer; statuses in ``none`` are no failure."""
        async with self._session.request(method, path, headers={"Accept": f"{_MANIFESTS}, */*"}) as answer:
            text = await answer.content.read(MAX_BYTES + 1)
            while not answer.content.at_eof() and len(text) <= MAX_BYTES:
                text += await answer.content.read(MAX_BYTES + 1)
            if answer.status not in none:
                answer.raise_for_status()
            if len(text) > MAX_BYTES:
                raise ValueError(f"{path} has more than {MAX_BYTES} bytes")
            return answer.status, answer.headers, text


def _below(one: _Found, all_of_them: Sequence[_Found]) -> Sequence[str]:
    return tuple(other.image.digest for other in all_of_them if other.own_layer in one.below)
