"""Archives of files that steps of templates copy, as clients upload them; each is kept until others need its room."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import IO, Final, cast

from aiohttp import web

from rollbox_bridges import tar_heads
from rollbox_bridges.e2b.words import Refusal

_MOST_BYTES: Final = 2**30
_MOST_KEPT_BYTES: Final = 2**32
_MOST_FILES: Final = 100_000
# Two blocks of heads for each file.
_MOST_ARCHIVE_BYTES: Final = _MOST_BYTES + _MOST_FILES * 2 * tarfile.BLOCKSIZE
_GZIP: Final = b"\x1f\x8b"


class Uploads:
    """Archives by owner and hash, in a folder that goes with this object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rollbox-bridge-")
        self._kept: OrderedDict[Path, int] = OrderedDict()

    def has(self, key: str, files: str) -> bool:
        """Whether an owner has uploaded an archive."""
        return self._path(key, files) in self._kept

    async def keep(self, request: web.Request, key: str, files: str) -> None:
        """Keep the body of a request, whole or not at all.

        Raises:
            Refusal: it is too long.
        """
        path = self._path(key, files)
        with tempfile.NamedTemporaryFile(dir=self._folder.name) as part:
            size = await _written(request, part)
            await asyncio.to_thread(_linked, part.name, path)
        self._kept.pop(path, None)
        self._kept[path] = size
        while sum(self._kept.values()) > _MOST_KEPT_BYTES:
            self._kept.popitem(last=False)[0].unlink()

    async def unpack(self, key: str, files: str, into: Path) -> None:
        """Unpack an archive into a folder that is made.

        Raises:
            Refusal: there is none, or it is none, or it reaches out of the folder.
        """
        path = self._path(key, files)
        if path not in self._kept:
            raise Refusal(
                400, f"the files {files[:12]} of a step were not uploaded, or not to this bridge: build again"
            )
        self._kept.move_to_end(path)
        try:
            await asyncio.to_thread(_unpacked, path, into)
        except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
            raise Refusal(400, f"the files {files[:12]} of a step cannot be unpacked: {error}") from error

    def _path(self, key: str, files: str) -> Path:
        return Path(self._folder.name, hashlib.sha256(f"{key}\0{files}".encode()).hexdigest())

    def close(self) -> None:
        """Remove all."""
        self._folder.cleanup()


async def _written(request: web.Request, file: IO[bytes]) -> int:
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > _MOST_BYTES:
            raise Refusal(413, f"the archive is over the {_MOST_BYTES} bytes that are taken")
        await asyncio.to_thread(file.write, part)
    await asyncio.to_thread(file.flush)
    return size


def _linked(part: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(part)


def _unpacked(path: Path, into: Path) -> None:
    into.mkdir()
    with _plain(path) as archive:
        try:
            tar_heads.check(archive, _MOST_FILES, _MOST_ARCHIVE_BYTES)
        except tar_heads.HeadsError as error:
            raise tarfile.TarError(f"the archive {error.message}") from error
    with _plain(path) as archive, tarfile.open(fileobj=archive, mode="r:") as opened:
        for member in opened:
            opened.extract(member, into, set_attrs=not member.issym(), filter="data")
    os.utime(into)


def _plain(path: Path) -> IO[bytes]:
    """An archive's bytes, uncompressed: clients upload gzip. Others may need as much memory as they say."""
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")
