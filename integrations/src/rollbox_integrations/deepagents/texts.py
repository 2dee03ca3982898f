"""What a model reads of a file, and what becomes of a text that it edits. Pure."""

from __future__ import annotations

import re
from base64 import b64encode

from deepagents.backends import utils
from deepagents.backends.protocol import FileData, ReadResult
from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, TRUNCATION_MSG

_ROOM_BYTES = MAX_OUTPUT_BYTES - len(TRUNCATION_MSG.encode())


def is_text(path: str) -> bool:
    """Whether deepagents takes a file for text by its name."""
    return utils._get_backend_read_file_type(path) == "text"  # noqa: SLF001 - its table of names has no public one


def read(path: str, data: bytes, offset: int, limit: int) -> ReadResult:
    """Show a file: a page of its lines, or all of it in base64.

    Args:
        path: of the file.
        data: all of it.
        offset: how many lines to leave out.
        limit: how many lines to show at most.
    """
    if not data:
        return ReadResult(file_data=FileData(content=utils.EMPTY_CONTENT_WARNING, encoding="utf-8"))
    if not is_text(path):
        return binary(path, data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return binary(path, data)
    lines = re.sub("\r\n?", "\n", text).removesuffix("\n").split("\n")
    return _page(path, lines, *utils.normalize_read_bounds(offset, limit))


def binary(path: str, data: bytes) -> ReadResult:
    """Show a file that is no text."""
    if len(data) > MAX_BINARY_BYTES:
        return failed(path, f"Binary file exceeds maximum preview size of {MAX_BINARY_BYTES} bytes")
    return ReadResult(file_data=FileData(content=b64encode(data).decode(), encoding="base64"))


def failed(path: str, why: str) -> ReadResult:
    """Say why a file cannot be shown."""
    return ReadResult(error=f"File '{path}': {why}")


def _page(path: str, lines: list[str], offset: int, limit: int) -> ReadResult:
    if limit == 0:
        return ReadResult(file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
    if offset >= len(lines):
        return failed(path, f"Line offset {offset} exceeds file length ({len(lines)} lines)")
    content, shown = _cut(lines[offset : offset + limit])
    end = offset + shown
    return ReadResult(
        file_data=FileData(content=content, encoding="utf-8"),
        total_lines=len(lines),
        start_line=offset + 1,
        end_line=end,
        next_offset=end if end < len(lines) else None,
    )


def _cut(lines: list[str]) -> tuple[str, int]:
    """Return the text of lines, and how many of them are whole in it; of a longer one its begin, to get past it."""
    content = "\n".join(lines)
    encoded = content.encode()
    if len(encoded) <= _ROOM_BYTES:
        return content, len(lines)
    begin = encoded[:_ROOM_BYTES].decode(errors="ignore")
    return begin + TRUNCATION_MSG, begin.count("\n") or 1


def replaced(text: str, old: str, new: str, *, every: bool) -> tuple[str, int] | str:
    """Replace a part of a text. What has been read has plain line feeds, so that the ends of lines may differ.

    Args:
        text: of the file.
        old: the part.
        new: what comes in its place.
        every: more than one of them; else that is an error.

    Returns:
        the new text and how many were replaced; or what is wrong.
    """
    for ends in (None, "\r\n", "\n"):
        part, instead = (old, new) if ends is None else (_with_ends(old, ends), _with_ends(new, ends))
        count = text.count(part)
        if count > 1 and not every:
            return f"String '{old}' appears multiple times ({count}): show more of what is around it, or replace_all"
        if count:
            return text.replace(part, instead), count
    return f"String not found in file: '{old}'"


def _with_ends(text: str, ends: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", ends)
