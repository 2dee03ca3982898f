"""Files of a container in and out, as tar: the container's own `tar` packs and unpacks them, as root."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from aiohttp import web

from rollbox import ExecResult, FileInfo, OutputStream, Process, errors
from rollbox_bridges.docker.asking import Query
from rollbox_bridges.docker.container import Container
from rollbox_bridges.docker.pathstat import HEADER, header
from rollbox_bridges.docker.words import Refusal, not_honoured, not_implemented

_ROOT: Final = "0"
_CHUNK_BYTES: Final = 2**18
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
# The beginnings of what only another program could read.
_OTHERS: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_MOST_MAGIC: Final = 6
# Of GNU's: a file has changed while it was read.
_CHANGED: Final = 1


async def stat(request: web.BaseRequest, container: Container) -> web.StreamResponse:
    """Tell what is at a path, in a header alone."""
    info = await _at(container, _path(Query(request, frozenset({"path"}))))
    return web.Response(headers={HEADER: header(info)})


async def get(request: web.BaseRequest, container: Container) -> web.StreamResponse:
    """Send what is at a path."""
    path = _path(Query(request, frozenset({"path"})))
    info = await _at(container, path)
    folder, name = _parts(path, info)
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar", HEADER: header(info)})
    async with await _tar(container, ["-C", folder, "-cf", "-", "--", name], stdin=False) as process:
        async for data in process.stdout:
            if not response.prepared:
                await response.prepare(request)
            await response.write(data)
        _check(await process.wait(), process.stdout, f"{path} could not be read whole", most=_CHANGED)
    await response.write_eof()
    return response


async def put(request: web.BaseRequest, container: Container) -> web.StreamResponse:
    """Unpack an archive below a folder. Files keep the numbers of their owners, and their modes.

    Cancel safety: `tar` is killed; what was unpacked stays.
    """
    query = Query(request, frozenset({"path", "copyUIDGID"}), harmless=frozenset({"noOverwriteDirNonDir"}))
    path = _path(query)
    if (await _at(container, path, follow=True)).kind != "directory":
        raise Refusal(400, f"extraction point {path} is not a directory")
    owners = ["-o"] if _as_the_user(container, copied=query.flag("copyUIDGID")) else []
    archive = plain(request.content.iter_chunked(_CHUNK_BYTES), request.headers.get("Content-Encoding", "identity"))
    async with await _tar(container, ["-C", path, *owners, "-xpf", "-"], stdin=True) as process:
        try:
            async for data in archive:
                await process.stdin.write(data)
            await process.stdin.write_eof()
        except errors.Conflict:
            # It reads no more: its end says why, or it has seen the end of the archive.
            pass
        _check(await process.wait(), process.stderr, f"the archive could not be unpacked in {path}")
    return web.Response()


async def _tar(container: Container, words: list[str], *, stdin: bool) -> Process:
    try:
        return await container.sandbox.spawn(["tar", *words], cwd="/", user=_ROOT, stdin=stdin)
    except errors.InvalidArgument as error:
        if error.details.get("reason") != "command_not_found":
            raise
        raise not_implemented(
            "copying files of an image without `tar`", "Use the SDK's files, which need no program of the image."
        ) from error


def _check(result: ExecResult, output: OutputStream, what: str, most: int = 0) -> None:
    if output.gaps:
        raise Refusal(500, f"{what}: output was lost on the way")
    if result.exit_code is None or result.exit_code > most:
        said = result.stderr_bytes.decode("utf-8", "replace").strip()[-2000:]
        raise Refusal(400 if result.exit_code is not None else 500, f"{what}: {said or f'tar ended as {result.end}'}")


async def _at(container: Container, path: str, *, follow: bool = False) -> FileInfo:
    # A slash at the end, or a dot, asks for what a link leads to.
    follow = follow or path.endswith(("/", "/."))
    try:
        return await container.sandbox.files.stat(path, follow=follow, user=_ROOT)
    except errors.FileNotFound as error:
        raise Refusal(404, f"Could not find the file {path} in container {container.id}") from error


def _path(query: Query) -> str:
    path = query.text("path")
    if not path or "\0" in path:
        raise Refusal(400, "the query has no path")
    return path if path.startswith("/") else f"/{path}"


def _parts(path: str, info: FileInfo) -> tuple[str, str]:
    """The folder that is packed from, and what is packed there."""
    if path.endswith("/.") and info.kind == "directory":
        return path, "."
    folder, _, name = path.rstrip("/").rpartition("/")
    return (folder or "/", name) if name else ("/", ".")


def _as_the_user(container: Container, *, copied: bool) -> bool:
    if copied and container.settled.user not in {"", "0", "root"}:
        raise not_honoured("copyUIDGID=true", f"files would be root's, and the user is {container.settled.user}")
    return copied


async def plain(data: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """An archive as it is, or out of gzip.

    Args:
        data: as it comes.
        encoding: that the request says.

    Raises:
        Refusal: it has another compression, or is no whole gzip.
    """
    if encoding not in {"identity", "gzip"}:
        raise Refusal(415, f"content encoding {encoding!r} is not known: gzip and identity are")
    head = b""
    while len(head) < _MOST_MAGIC and (part := await anext(data, b"")):
        head += part
    for magic, name in _OTHERS.items():
        if head.startswith(magic):
            raise not_honoured(f"an archive compressed by {name}", "gzip is, and none")
    if not head.startswith(_GZIP):
        yield head
        async for part in data:
            yield part
        return
    reader = zlib.decompressobj(_GZIP_WINDOW)
    part = head
    while part:
        while part:
            yield _inflated(reader, part)
            part = reader.unconsumed_tail
        part = await anext(data, b"")
    if not reader.eof:
        raise Refusal(400, "the archive ends within its gzip stream")


def _inflated(reader: zlib._Decompress, data: bytes) -> bytes:
    try:
        return reader.decompress(data, _CHUNK_BYTES)
    except zlib.error as error:
        raise Refusal(400, f"the archive is no gzip: {error}") from error
