"""The tools for files. Their docstrings are what a model is told of them."""

from __future__ import annotations

import base64
from typing import Final, Literal

from rollbox.errors import InvalidArgument
from rollbox.files import FileInfo
from rollbox_integrations.mcp.excerpts import before, continued
from rollbox_integrations.mcp.inputs import ListFiles, ReadFile, WriteFile
from rollbox_integrations.mcp.outputs import EntryOutput, FileOutput, ListingOutput, WrittenOutput
from rollbox_integrations.mcp.pictures import MOST_PICTURE_BYTES, Picture, Shown, kind
from rollbox_integrations.mcp.sandboxes import Sandboxes

_LOOK_AHEAD: Final = 4


async def read_file(sandboxes: Sandboxes, given: ReadFile) -> Shown:
    """Read a file, or the piece of it that begins at a byte; next_offset continues there.

    Text comes as it is, other bytes as base64, and a small PNG, JPEG or GIF as a picture.
    """
    files = sandboxes.get(given.sandbox_id).sandbox.files
    info = await files.stat(given.path)
    if info.kind == "other":
        raise InvalidArgument(f"{given.path} is a device, a FIFO or a socket, no file")
    # A few bytes more, to see where a character ends.
    data = await files.read(given.path, offset=given.offset, length=given.max_bytes + _LOOK_AHEAD)
    mime = kind(data) if given.offset == 0 and info.size_bytes <= MOST_PICTURE_BYTES else None
    if mime is not None:
        whole = await files.read(given.path, length=MOST_PICTURE_BYTES)
        return Shown(_told(given, given.offset, "picture", "", whole, len(whole), info), [Picture(mime, whole)])
    first = continued(data) if given.offset else 0
    last = before(data, given.max_bytes) if len(data) > given.max_bytes else len(data)
    try:
        text = data[first:last].decode()
    except UnicodeDecodeError:
        last = min(len(data), given.max_bytes)
        return Shown(_told(given, given.offset, "base64", base64.b64encode(data[:last]).decode(), data, last, info))
    return Shown(_told(given, given.offset + first, "utf-8", text, data, last, info))


async def write_file(sandboxes: Sandboxes, given: WriteFile) -> WrittenOutput:
    """Write a whole file, in place of what it had; missing directories are made."""
    mode = int(given.mode, 8) if given.mode else None
    sandbox = sandboxes.get(given.sandbox_id).sandbox
    info = await sandbox.files.write(given.path, _content(given), mode=mode)
    return WrittenOutput(path=info.path, size_bytes=info.size_bytes, sha256=info.sha256)


async def list_files(sandboxes: Sandboxes, given: ListFiles) -> ListingOutput:
    """List a directory."""
    files = sandboxes.get(given.sandbox_id).sandbox.files
    found = await files.list(given.path, recursive=given.recursive, limit=given.limit)
    return ListingOutput(entries=[_entry(one) for one in found], truncated=found.truncated)


def _content(given: WriteFile) -> bytes:
    if given.encoding == "utf-8":
        return given.content.encode()
    try:
        return base64.b64decode(given.content, validate=True)
    except ValueError as error:
        raise InvalidArgument(f"content is no base64: {error}") from error


def _told(
    given: ReadFile,
    offset: int,
    encoding: Literal["utf-8", "base64", "picture"],
    content: str,
    data: bytes,
    used: int,
    info: FileInfo,
) -> FileOutput:
    following = given.offset + used
    return FileOutput(
        path=given.path,
        content=content,
        encoding=encoding,
        offset=offset,
        next_offset=following,
        # Files of /proc have no size.
        size_bytes=max(info.size_bytes, given.offset + len(data)),
        truncated=used < len(data) or following < info.size_bytes,
    )


def _entry(info: FileInfo) -> EntryOutput:
    return EntryOutput(
        path=_printable(info.path),
        kind=info.kind,
        size_bytes=info.size_bytes,
        mode=f"{info.mode:04o}",
        link_target=None if info.link_target is None else _printable(info.link_target),
    )


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
