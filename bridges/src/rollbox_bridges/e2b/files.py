"""`/files`: the contents of files, down and up, as a form of parts or as plain bytes; in constant memory."""

from __future__ import annotations

import hmac
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from email.message import Message
from typing import Any, Final

from aiohttp import BodyPartReader, web

from rollbox import FileInfo
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.signatures import signature
from rollbox_bridges.e2b.words import Refusal
from rollbox_bridges.forms import FormError, content_of, files_of

_CHUNK_BYTES: Final = 2**18
_GZIP: Final = 31
_MOST_PARTS: Final = 1000


async def download(request: web.Request, session: Session) -> web.StreamResponse:
    """Send a file."""
    path, user = _path(request), _user(request)
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    async with aclosing(session.sandbox.files.open_read(path, user=user)) as parts:
        # The head is sent once there is something to send: an error before has a status of its own.
        first = await anext(parts, b"")
        await response.prepare(request)
        if first:
            await response.write(first)
        async for part in parts:
            await response.write(part)
    await response.write_eof()
    return response


async def upload(request: web.Request, session: Session) -> web.StreamResponse:
    """Write files."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if request.content_type == "multipart/form-data":
        try:
            written = await _parts(request, session)
        except FormError as error:
            raise Refusal(error.status, error.message, "invalid_argument") from error
    else:
        path = _path(request)
        data = _plain(request.content.iter_chunked(_CHUNK_BYTES), encoding)
        written = [await session.sandbox.files.write(path, data, user=_user(request))]
    return web.json_response([_told(await session.shown(one)) for one in written])


async def _parts(request: web.Request, session: Session) -> list[FileInfo]:
    """Write each part to the path that is its name, or to that of the address where there is one part."""
    written: list[FileInfo] = []
    async with aclosing(files_of(request)) as parts:
        async for part in parts:
            if len(written) >= _MOST_PARTS:
                raise Refusal(413, f"the form has more than {_MOST_PARTS} files")
            path = request.query.get("path") or _name(part)
            written.append(await session.sandbox.files.write(path, content_of(part), user=_user(request)))
    if len(written) > 1 and "path" in request.query:
        raise Refusal(400, "a path in the address is for one file alone, and the form has more")
    return written


def _name(part: BodyPartReader) -> str:
    # The name that aiohttp tells has lost its leading slash.
    message = Message()
    message["Content-Disposition"] = part.headers.get("Content-Disposition", "")
    name = message.get_filename()
    if not name:
        raise Refusal(400, "a part of the form has no file name, and the address no path")
    return name


async def _plain(data: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    if encoding == "identity":
        async for part in data:
            yield part
        return
    if encoding != "gzip":
        raise Refusal(415, f"content encoding {encoding!r} is not known: gzip and identity are")
    reader = zlib.decompressobj(_GZIP)
    async for part in data:
        left = part
        while left:
            try:
                yield reader.decompress(left, _CHUNK_BYTES)
            except zlib.error as error:
                raise Refusal(400, f"the body is no gzip: {error}") from error
            left = reader.unconsumed_tail
    if not reader.eof:
        raise Refusal(400, "the body ends within its gzip stream")


def _path(request: web.Request) -> str:
    path = request.query.get("path", "")
    if not path:
        raise Refusal(400, "the address has no path")
    return path


def _user(request: web.Request) -> str | None:
    return request.query.get("username") or None


def _told(info: FileInfo) -> dict[str, Any]:
    return {"name": info.path.rpartition("/")[2], "path": info.path, "type": "file"}


def is_signed(query: Mapping[str, str], operation: str, credential: str) -> bool:
    """Whether the address of a file is signed with a credential.

    Raises:
        Refusal: it is, and its time is over.
    """
    expires = query.get("signature_expiration", "")
    wanted = signature(query.get("path", ""), operation, query.get("username", ""), credential, expires)
    if not hmac.compare_digest(wanted.encode(), query["signature"].encode("utf-8", "surrogatepass")):
        return False
    if expires and not (expires.isascii() and expires.isdigit() and int(expires[:12]) >= time.time()):
        raise Refusal(401, "signature is already expired")
    return True
