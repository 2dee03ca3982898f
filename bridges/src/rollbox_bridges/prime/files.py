"""Files of a sandbox, as the gateway serves them: up as one part of a form, down as bytes, and a window as text."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from aiohttp import web

from rollbox import FileInfo
from rollbox_bridges.forms import FormError, content_of, files_of
from rollbox_bridges.prime.records import time_of
from rollbox_bridges.prime.sessions import Session
from rollbox_bridges.prime.words import Refusal

_MOST_TEXT: Final = 2**25
"""Of a file that is read as text, which is in memory as a whole."""
_MOST_DIGITS: Final = 18


async def upload(request: web.Request, session: Session) -> web.StreamResponse:
    """Write a file, in constant memory; its directories are made."""
    path = _path(request, session)
    if request.content_type != "multipart/form-data":
        raise Refusal(415, "the body is no form with a part of the name 'file'")
    try:
        written = await _written(request, session, path)
    except FormError as error:
        raise Refusal(error.status, error.message, "invalid_argument") from error
    told = {"success": True, "path": written.path, "size": written.size_bytes}
    return web.json_response({**told, "timestamp": time_of(written.modified_at_ms)})


async def download(request: web.Request, session: Session) -> web.StreamResponse:
    """Send a file, in constant memory."""
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    async with aclosing(session.sandbox.files.open_read(_path(request, session))) as parts:
        # The head is sent once there is something to send: an error before has a status of its own.
        first = await anext(parts, b"")
        await response.prepare(request)
        if first:
            await response.write(first)
        async for part in parts:
            await response.write(part)
    await response.write_eof()
    return response


async def read(request: web.Request, session: Session) -> web.StreamResponse:
    """Send a window of a file as text: from an offset, which is from the end where it is negative."""
    path, files = _path(request, session), session.sandbox.files
    offset, length = _number(request, "offset"), _number(request, "length")
    if length is not None and length < 0:
        raise Refusal(400, f"length {length} is below 0")
    size = (await files.stat(path)).size_bytes
    begin = min(size, offset or 0) if (offset or 0) >= 0 else max(0, size + (offset or 0))
    wanted = size - begin if length is None else min(length, size - begin)
    if wanted > _MOST_TEXT:
        raise Refusal(413, f"{wanted} bytes of {path!r} are over the {_MOST_TEXT} that are read as text: download it")
    if size and not wanted:
        data = b""
    else:
        # Files below /proc have a size of 0 and a content.
        data = await files.read(path, offset=begin, length=wanted or min(length or _MOST_TEXT, _MOST_TEXT))
    total = size or len(data)
    told = {"content": data.decode("utf-8", "replace"), "size": len(data), "total_size": total, "offset": begin}
    return web.json_response({**told, "truncated": len(data) < total})


async def _written(request: web.Request, session: Session, path: str) -> FileInfo:
    async with aclosing(files_of(request)) as parts:
        written = await session.sandbox.files.write(path, content_of(await anext(parts)))
        async for _ in parts:
            raise FormError("the form has other parts than one file of the name 'file'")
    return written


def _path(request: web.Request, session: Session) -> str:
    path, named = request.query.get("path", ""), request.query.get("sandbox_id", session.sandbox.id)
    if not path:
        raise Refusal(400, "the address has no path")
    if named != session.sandbox.id:
        raise Refusal(400, f"sandbox_id {named[:64]!r} is not the sandbox of the address")
    return path


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise Refusal(400, f"{name} {text[:30]!r} is not a whole number")
    return int(text)
