"""The image from which a build copies what its Dockerfile has inline, and what was fetched for it."""

import asyncio
import hashlib
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import BinaryIO, Final

from controlplane.cluster.dockerfiles.sources import File
from controlplane.cluster.engine.client import EngineClient
from controlplane.cluster.engine.commit.archive import archive

# As the files of a context: the same content is the same layer, whenever it is made.
TIME_S: Final = 315_619_200
_CREATED: Final = "1980-01-02T00:00:00Z"
CHUNK_BYTES: Final = 1 << 20
# Where large things may be: a folder in memory would take what sandboxes need.
SPOOL: Final = "/var/tmp"  # noqa: S108 - the file has no name

Fetch = Callable[[File, BinaryIO], Awaitable[int]]


def name(installation: str, build_id: str) -> str:
    """What the image of a build is called."""
    return f"localhost/rollbox-files-{installation}-{build_id}:latest"


async def made(client: EngineClient, called: str, architecture: str, files: Sequence[File], fetch: Fetch) -> str:
    """Gives the engine an image with these files; returns its id.

    Args:
        client: of the engine.
        called: the image's name.
        architecture: the machine's.
        files: of it.
        fetch: writes what is behind an address.

    Raises:
        Problem: that of ``fetch``; the engine's.
    """
    with tempfile.TemporaryFile(dir=SPOOL) as layer:
        for file in files:
            await _add(layer, file, fetch)
        layer.write(b"\0" * 2 * tarfile.BLOCKSIZE)
        size_bytes = layer.tell()
        layer.seek(0)
        digest = f"sha256:{(await asyncio.to_thread(hashlib.file_digest, layer, 'sha256')).hexdigest()}"
        base = {"Architecture": architecture, "Os": "linux"}
        around = archive(base, digest, size_bytes, name=called, created=_CREATED)
        await client.load(_pieces(around.head, layer, around.tail))
    return around.digest.removeprefix("sha256:")


async def _add(layer: BinaryIO, file: File, fetch: Fetch) -> None:
    """Appends a file; one that is fetched gets its head once its length is known."""
    begin = layer.tell()
    entry = tarfile.TarInfo(file.path)
    entry.mode, entry.mtime, entry.size = file.mode, TIME_S, len(file.content)
    layer.write(entry.tobuf(tarfile.PAX_FORMAT))
    if file.address:
        entry.size = await fetch(file, layer)
        layer.seek(begin)
        layer.write(entry.tobuf(tarfile.PAX_FORMAT))
        layer.seek(0, 2)
    else:
        layer.write(file.content)
    layer.write(b"\0" * (-entry.size % tarfile.BLOCKSIZE))


async def _pieces(head: bytes, layer: BinaryIO, tail: bytes) -> AsyncIterator[bytes]:
    yield head
    layer.seek(0)
    while data := await asyncio.to_thread(layer.read, CHUNK_BYTES):
        yield data
    yield tail
