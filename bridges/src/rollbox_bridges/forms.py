"""Bodies of requests that are forms of files, read as they come; in constant memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError

_CHUNK_BYTES: Final = 2**18
# What aiohttp raises where a form is malformed.
_MALFORMED: Final = (ValueError, LookupError, RuntimeError, AssertionError, HttpProcessingError)
# By these a part says that its content is another one than its bytes.
_ENCODINGS: Final = {"Content-Encoding": ("identity",), "Content-Transfer-Encoding": ("binary", "8bit", "7bit")}


class FormError(Exception):
    """A body is no form of files.

    Attributes:
        status: of HTTP.
        message: one sentence.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


async def files_of(request: web.Request) -> AsyncGenerator[BodyPartReader, None]:
    """The files of a form, each of the name `file`. One is to be read before the next one is asked for.

    Raises:
        FormError: it is malformed, has something else, or has no file.
    """
    form = _begun(request)
    found = False
    while (part := await _next(form)) is not None:
        found = True
        yield part
    if not found:
        raise FormError("the form has no file")


async def content_of(part: BodyPartReader) -> AsyncGenerator[bytes, None]:
    """The content of a file.

    Raises:
        FormError: the form is malformed.
    """
    while data := await _chunk(part):
        yield data


def _begun(request: web.Request) -> MultipartReader:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise FormError(f"a form in content encoding {encoding[:40]!r} is not taken: send it as it is", 415)
    try:
        return MultipartReader(request.headers, request.content)
    except _MALFORMED as error:
        raise _malformed(error) from error


async def _next(form: MultipartReader) -> BodyPartReader | None:
    try:
        part = await form.next()
    except _MALFORMED as error:
        raise _malformed(error) from error
    if part is None:
        return None
    if not isinstance(part, BodyPartReader) or part.name != "file":
        raise FormError("a part of the form is not a file of the name 'file'")
    for name, plain in _ENCODINGS.items():
        if (encoding := part.headers.get(name)) is not None and encoding.lower() not in plain:
            raise FormError(f"a file in {name} {encoding[:40]!r} is not taken: send it as it is", 415)
    return part


async def _chunk(part: BodyPartReader) -> bytes:
    try:
        return bytes(await part.read_chunk(_CHUNK_BYTES))
    except _MALFORMED as error:
        raise _malformed(error) from error


def _malformed(error: BaseException) -> FormError:
    return FormError(f"the form is malformed: {error}")
