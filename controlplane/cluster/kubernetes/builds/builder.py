"""``Builder``: speaks with the program in a build's pod (``node-go/internal/builder``)."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, BinaryIO, Final, Self
from urllib.parse import urlsplit

import aiohttp

from controlplane.cluster.dockerfiles import context as contexts
from controlplane.cluster.dockerfiles.bounds import Log
from controlplane.cluster.dockerfiles.sources import File
from controlplane.cluster.kubernetes.builds.manifests import Base, Blob
from controlplane.cluster.protocol.builds import BuildWish
from controlplane.errors import Problem

CONNECT_S: Final = 10.0
# It ends what steps have left first, which takes a second at most.
READY_S: Final = 10.0
# A pod whose sandbox has died closes no connection: its silence is noticed 25 s after.
ALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
UNHEARD_MS: Final = 25_000
CHUNK_BYTES: Final = 256 << 10
# Of one line of its answer: its words are bounded, and an image has 127 layers.
MOST_LINE_BYTES: Final = 256 << 10
MOST_WORDS: Final = 600
MOST_PROGRAM_BYTES: Final = 64 << 20
DISK: Final = "room"
STEP: Final = "step"
# Of what is fetched for it: an address that does not answer with it, too much of it, egress that does not work.
ADDRESS, TOO_MUCH, EGRESS = "address", "size", "egress"
WISH: Final = "wish.json"
# The name of an image in the Dockerfile that the builder gets; no stage can have it.
NAMED: Final = "rollbox/{}"
_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError, EOFError, asyncio.LimitOverrunError, json.JSONDecodeError)


class LeftError(Exception):
    """The connection to a builder is gone: its pod says why."""


class Builder:
    """One builder.

    Args:
        session: has its address, and the token.
        disk_bytes: what its files may take, for the words of a failure.
        address: of its server, ``http://HOST:PORT``.
        token: what a caller has to show there.
    """

    def __init__(self, session: aiohttp.ClientSession, disk_bytes: int, address: str, token: str) -> None:
        self._session = session
        self._disk_bytes = disk_bytes
        self._place = urlsplit(address)
        ask = ("POST /connections HTTP/1.1", f"Host: {self._place.netloc}", f"Authorization: Bearer {token}")
        self._ask = "\r\n".join([*ask, "Content-Length: 0", "", ""]).encode()

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, token: str, disk_bytes: int) -> AsyncIterator[Self]:
        """The connection while the block runs; a failure of it is a ``LeftError``."""
        async with aiohttp.ClientSession(
            address,
            connector=aiohttp.TCPConnector(socket_factory=_alive),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers={"Authorization": f"Bearer {token}"},
            read_bufsize=MOST_LINE_BYTES,
        ) as session:
            yield cls(session, disk_bytes, address, token)

    async def ready(self) -> bool:
        """Whether a build may begin there; one that says nothing for 10 s is not ready."""
        try:
            async with self._session.get("/ready", timeout=aiohttp.ClientTimeout(total=READY_S)) as answer:
                return answer.status == HTTPStatus.OK
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def bring(self, digest: str, content: bytes | AsyncIterator[bytes]) -> None:
        """Gives it a content that the build reads.

        Raises:
            LeftError: it is gone.
            Problem: build_failed: it has no room for it.
        """
        with _reached():
            async with self._session.put(f"/blobs/{digest}", data=content) as answer:
                if answer.status == HTTPStatus.INSUFFICIENT_STORAGE:
                    raise self._full("the images that it reads have no room there")
                if answer.status != HTTPStatus.CREATED:
                    said = (await answer.content.read(MOST_WORDS)).decode(errors="replace")
                    raise Problem("internal", f"no image was built: the builder answers {answer.status}: {said}")

    async def program(self) -> bytes:
        """Its own program.

        Raises:
            LeftError: it is gone.
        """
        with _reached():
            async with self._session.get("/program") as answer:
                answer.raise_for_status()
                if not 0 < (answer.content_length or 0) <= MOST_PROGRAM_BYTES:
                    raise LeftError
                return await answer.read()

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The next connection that a step of its build opens; waits for it.

        Raises:
            LeftError: it is gone.
        """
        with _reached():
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(self._place.hostname, self._place.port)
            try:
                _watched(writer.get_extra_info("socket"))
                writer.write(self._ask)
                if (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2] != [b"101"]:
                    raise LeftError
            except BaseException:
                writer.close()
                raise
            return reader, writer

    async def build(
        self,
        wish: BuildWish,
        dockerfile: str,
        bases: Mapping[str, Base],
        context: BinaryIO,
        secrets: Mapping[str, bytes],
        *,
        files: Sequence[File] = (),
        mark: str,
        network: bool = False,
    ) -> AsyncGenerator[str | dict[str, Any], None]:
        """Builds; tells what the builder says, then the manifest of what it has made.

        Args:
            wish: what is to be built.
            dockerfile: with the names of ``bases``.
            bases: by these names; they were brought before.
            context: the archive.
            secrets: contents by id.
            files: those that are inline in the Dockerfile, and those that the builder fetches, with a network.
            mark: a folder's name that no context has.
            network: its steps have a way out, by ``connection``.

        Raises:
            LeftError: it is gone.
            Problem: build_failed; internal: BuildKit has failed.
        """
        kept = {one: f"secret-{place}" for place, one in enumerate(secrets)}
        said = {
            "target": wish.target,
            "arguments": dict(wish.arguments),
            "network": network,
            "bases": {name: base.digest for name, base in bases.items()},
            "secrets": kept,
            "files": bool(files),
            "fetched": [_fetched(one) for one in files if one.address],
        }
        beside = {WISH: json.dumps(said).encode(), "Dockerfile": dockerfile.encode()}
        beside |= {kept[one]: secrets[one] for one in secrets}
        beside |= {f"files/{one.path}": one.content for one in files if not one.address}
        modes = {f"{mark}/files/{one.path}": one.mode for one in files}
        head = contexts.beside({f"{mark}/{name}": content for name, content in beside.items()}, modes)
        log = Log()
        with _reached():
            headers = {"Rollbox-Mark": mark}
            async with self._session.post("/build", data=_archive(head, context), headers=headers) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    told = json.loads(line)
                    if text := log.bounded(str(told.get("text") or "")):
                        yield text
                    if image := told.get("image"):
                        yield image
                        return
                    if reason := told.get("reason"):
                        raise self._failure(reason, str(told.get("why"))[:MOST_WORDS], told.get("line"))
        raise LeftError

    async def made(self, blob: Blob) -> AsyncIterator[bytes]:
        """A content of what was made.

        Raises:
            LeftError: it is gone.
        """
        with _reached():
            async with self._session.get(f"/blobs/{blob.digest}") as answer:
                answer.raise_for_status()
                async for piece in answer.content.iter_chunked(CHUNK_BYTES):
                    yield piece

    def _failure(self, reason: str, why: str, line: object) -> Problem:
        if reason == STEP:
            return Problem("build_failed", f"no image was built: {why}")
        if reason == ADDRESS:
            return Problem("build_failed", f"no image was built: {why}", line=line if isinstance(line, int) else 0)
        if reason == TOO_MUCH:
            return Problem("payload_too_large", why, reason="context_too_large")
        if reason == EGRESS:
            return Problem("egress_unavailable", why)
        if reason == DISK:
            return self._full(why)
        return Problem("internal", f"no image was built, the builder has failed: {why}")

    def _full(self, why: str) -> Problem:
        detail = (
            f"no image was built: its files, with the images that it reads, may have {self._disk_bytes} bytes: {why}"
        )
        return Problem("build_failed", detail, reason="build_disk_full")


def _fetched(file: File) -> dict[str, object]:
    return {"path": file.path, "address": file.address, "checksum": file.checksum, "line": file.line}


def _alive(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    _watched(made)
    return made


def _watched(made: socket.socket) -> None:
    """Has the kernel notice that nobody answers any more."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**ALIVE, "TCP_USER_TIMEOUT": UNHEARD_MS}.items():
        made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _reached:  # noqa: N801 - used as a function
    """Takes failures of the connection for what they are."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, _BROKEN):
            raise LeftError from error


async def _archive(head: bytes, context: BinaryIO) -> AsyncIterator[bytes]:
    yield head
    context.seek(0)
    while data := await asyncio.to_thread(context.read, CHUNK_BYTES):
        yield data
