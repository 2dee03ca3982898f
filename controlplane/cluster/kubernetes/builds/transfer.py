"""``Transfer``: what a build reads comes from the private registry, and what it has made goes there, past the builder.

With tokens for these repositories alone, as agents have them for commits.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from controlplane.cluster.kubernetes.builds.manifests import MANIFEST, Base, Blob, Made
from controlplane.cluster.kubernetes.node_agents.registry_account import read_within
from controlplane.cluster.kubernetes.node_agents.tokens import minted
from controlplane.errors import Problem
from controlplane.images import (
    ACCEPTED,
    MAX_MANIFEST_BYTES,
    checked_config,
    checked_manifest,
    digest_of,
    entries_for,
    is_index,
)
from controlplane.settings import CommitSettings

CONNECT_S: Final = 10.0
SILENT_S: Final = 60.0
CHUNK_BYTES: Final = 256 << 10

Pieces = AsyncIterator[bytes]


class Transfer:
    """One build's way to the registry.

    Args:
        session: has the address and the token.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(
        cls, place: CommitSettings, authority: Path | None, rights: Mapping[str, Sequence[str]], now_s: int
    ) -> AsyncIterator[Self]:
        """The way while the block runs.

        Args:
            place: where agents put commits.
            authority: of its certificate; None: one that systems trust.
            rights: repository -> what may be done to it.
            now_s: Unix time.

        Raises:
            Problem: upstream_timeout: it does not answer, or not as a registry does.
        """
        token = await asyncio.to_thread(minted, place.tokens, rights, now_s)
        trusted = await asyncio.to_thread(ssl.create_default_context, cafile=authority)
        async with aiohttp.ClientSession(
            f"https://{place.address}/v2/",
            connector=aiohttp.TCPConnector(ssl=trusted),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S),
            headers={"Authorization": f"Bearer {token}"},
        ) as session:
            try:
                yield cls(session)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                detail = f"no image was built: the private registry {place.address} failed: {_told(error)}"
                raise Problem("upstream_timeout", detail) from error

    async def base(self, name: str, repository: str, digest: str, architecture: str) -> tuple[Base, Mapping[str, Any]]:
        """What an image is for this architecture, and its configuration.

        Args:
            name: as the Dockerfile has it.
            repository: of its copy.
            digest: of its copy: a manifest, or an index of some.
            architecture: of the nodes.

        Raises:
            Problem: unsupported: no build can begin with it.
        """
        kind, body = await self._manifest(repository, digest)
        if is_index(kind, body):
            chosen = entries_for(name, body, [architecture])[0]
            digest = chosen.digest
            kind, body = await self._manifest(repository, digest)
        checked_manifest(name, kind, body)
        manifest = json.loads(body)
        layers = [Blob(str(one["digest"]), int(one["size"]), str(one["mediaType"])) for one in manifest["layers"]]
        config = Blob(str(manifest["config"]["digest"]), int(manifest["config"]["size"]))
        text = await self._read(f"{repository}/blobs/{config.digest}", MAX_MANIFEST_BYTES)
        checked_config(name, text, [architecture])
        return Base(name, repository, digest, body, config, layers), json.loads(text)

    @asynccontextmanager
    async def blob(self, repository: str, digest: str) -> AsyncIterator[Pieces]:
        """A content, piece by piece."""
        async with self._session.get(f"{repository}/blobs/{digest}") as answer:
            answer.raise_for_status()
            yield answer.content.iter_chunked(CHUNK_BYTES)

    async def put(self, repository: str, made: Made, tags: Sequence[str], content: Callable[[Blob], Pieces]) -> str:
        """Puts an image there, either whole or not at all; returns its digest.

        Args:
            repository: where.
            made: the image.
            tags: its names there.
            content: has what no base has.
        """
        for blob in [made.config, *made.own]:
            await self._upload(repository, blob, partial(content, blob))
        for digest, base in made.below.items():
            await self._mount(repository, next(one for one in made.layers if one.digest == digest), base)
        body = made.manifest()
        digest = digest_of(body)
        done = False
        try:
            for tag in [f"id-{digest.partition(':')[2]}", *tags]:
                headers = {"Content-Type": MANIFEST}
                async with self._session.put(f"{repository}/manifests/{tag}", data=body, headers=headers) as answer:
                    answer.raise_for_status()
            done = True
        finally:
            if not done:
                await asyncio.shield(self._remove(repository, digest))
        return digest

    async def _manifest(self, repository: str, digest: str) -> tuple[str, bytes]:
        headers = {"Accept": ", ".join(ACCEPTED)}
        async with self._session.get(f"{repository}/manifests/{digest}", headers=headers) as answer:
            answer.raise_for_status()
            body = await read_within(answer, MAX_MANIFEST_BYTES)
            if body is None or digest_of(body, digest) != digest:
                raise Problem("internal", f"the private registry has another content under {repository}@{digest}")
            return answer.content_type, body

    async def _read(self, path: str, most_bytes: int) -> bytes:
        async with self._session.get(path) as answer:
            answer.raise_for_status()
            body = await read_within(answer, most_bytes)
            if body is None:
                raise Problem("internal", f"{path} has more than {most_bytes} bytes in the private registry")
            return body

    async def _mount(self, repository: str, blob: Blob, base: str) -> None:
        """Takes a base's layer over, which costs no copy where the registry does it by itself."""
        if base == repository or await self._has(repository, blob.digest):
            return
        query = {"mount": blob.digest, "from": base}
        async with self._session.post(f"{repository}/blobs/uploads/", params=query) as answer:
            answer.raise_for_status()
            if answer.status == HTTPStatus.CREATED:
                return
        async with self.blob(base, blob.digest) as pieces:
            await self._upload(repository, blob, lambda: pieces)

    async def _upload(self, repository: str, blob: Blob, content: Callable[[], Pieces]) -> None:
        if await self._has(repository, blob.digest):
            return
        async with self._session.post(f"{repository}/blobs/uploads/") as answer:
            answer.raise_for_status()
            begun = answer.url.join(URL(_local(answer.headers["Location"]), encoded=True))
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size_bytes)}
        to = begun.update_query(digest=blob.digest)
        async with self._session.put(to, data=_exactly(content(), blob), headers=headers) as answer:
            answer.raise_for_status()

    async def _has(self, repository: str, digest: str) -> bool:
        async with self._session.head(f"{repository}/blobs/{digest}") as answer:
            if answer.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
                answer.raise_for_status()
            return answer.status == HTTPStatus.OK

    async def _remove(self, repository: str, digest: str) -> None:
        async with self._session.delete(f"{repository}/manifests/{digest}") as answer:
            if answer.status != HTTPStatus.NOT_FOUND:
                answer.raise_for_status()


async def _exactly(pieces: Pieces, blob: Blob) -> Pieces:
    """The pieces of a content, which has so many bytes as was said of it."""
    seen = 0
    async for piece in pieces:
        seen += len(piece)
        if seen > blob.size_bytes:
            break
        yield piece
    if seen != blob.size_bytes:
        raise Problem(
            "internal", f"no image was built: {blob.digest} has not the {blob.size_bytes} bytes that were said"
        )


def _local(location: str) -> str:
    """The path of an address that the registry gives, which is asked of nobody else."""
    found = urlsplit(location)
    return f"{found.path}?{found.query}" if found.query else found.path


def _told(error: Exception) -> str:
    """An error in words. That of an answer shows the request as Python writes it: with the token."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"it answers {error.status} to {error.request_info.method} {error.request_info.url.path}"
    return repr(error)
