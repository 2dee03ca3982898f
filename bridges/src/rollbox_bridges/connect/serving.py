"""Serves calls of the Connect protocol with aiohttp: one message for one, or a stream of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from aiohttp import web
from google.protobuf.message import Message

from rollbox_bridges.connect import codec, framing
from rollbox_bridges.connect.codes import ConnectError, end_of_stream

_M = TypeVar("_M", bound=Message)
MOST_BYTES: Final = 2**22
"""Of one message."""
_TIMEOUT: Final = "Connect-Timeout-Ms"
_DIGITS: Final = 10


def timeout_s(request: web.Request) -> float | None:
    """Seconds that the caller gives the call; None: no limit.

    Raises:
        ConnectError: the header is malformed.
    """
    text = request.headers.get(_TIMEOUT, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        raise ConnectError("invalid_argument", f"{_TIMEOUT} {text[:30]!r} is not a number of at most {_DIGITS} digits")
    return int(text) / 1000 or None


@asynccontextmanager
async def within(request: web.Request) -> AsyncIterator[None]:
    """Bound what is awaited by the time that the caller gives the call.

    Raises:
        ConnectError: the time is over, or the header that says it is malformed.
    """
    limit_s = timeout_s(request)
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise ConnectError("deadline_exceeded", f"the call was not over within its {limit_s} s") from error


async def asked(request: web.Request, kind: type[_M], *, streams: bool) -> tuple[codec.Shape, _M]:
    """Read the one message of a call.

    Args:
        request: its request.
        kind: of the message.
        streams: whether its answer is a stream, which has the question in an envelope too.

    Raises:
        ConnectError: it is malformed, too large, or not one message.
    """
    shape = codec.shape_of(request.headers.get("Content-Type", ""), streams=streams)
    if streams:
        return shape, codec.decoded(shape.codec, kind, await _only(request))
    data = await _whole(request)
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding == "gzip":
        data = framing.decompressed(data, MOST_BYTES)
    elif encoding != "identity":
        raise ConnectError("unimplemented", f"content encoding {encoding!r} is not known: gzip and identity are")
    return shape, codec.decoded(shape.codec, kind, data)


async def envelopes(request: web.Request) -> AsyncIterator[bytes]:
    """The contents of the envelopes of a request, as they come.

    Raises:
        ConnectError: one is malformed or too large.
    """
    reader = framing.Envelopes(MOST_BYTES)
    async for data in request.content.iter_any():
        for envelope in reader.feed(data):
            if not envelope.flags & framing.END_OF_STREAM:
                yield envelope.content
    reader.finish()


async def _only(request: web.Request) -> bytes:
    """The one message of a stream; of more the second one is the last that is read."""
    only: bytes | None = None
    async for content in envelopes(request):
        if only is not None:
            raise ConnectError("invalid_argument", "the call has several messages, not one")
        only = content
    if only is None:
        raise ConnectError("invalid_argument", "the call has 0 messages, not one")
    return only


async def _whole(request: web.Request) -> bytes:
    data = bytearray()
    async for part in request.content.iter_any():
        data += part
        if len(data) > MOST_BYTES:
            raise ConnectError("out_of_range", f"the body is over the {MOST_BYTES} bytes that are taken")
    return bytes(data)


def answer(shape: codec.Shape, message: Message) -> web.Response:
    """The answer of a call without a stream."""
    return web.Response(body=codec.encoded(shape.codec, message), content_type=shape.content_type)


def refusal(error: ConnectError) -> web.Response:
    """The answer of a call that failed before any answer."""
    return web.json_response(error.to_json(), status=error.status)


class Answers:
    """The stream of answers of a call. Its head is sent with the first one."""

    def __init__(self, request: web.Request, shape: codec.Shape) -> None:
        self._request = request
        self._shape = shape
        self._turn = asyncio.Lock()
        self.response = web.StreamResponse(headers={"Content-Type": shape.content_type})

    @property
    def begun(self) -> bool:
        """Whether something was sent, so that an error has to be the last of the stream."""
        return self.response.prepared

    async def send(self, message: Message) -> None:
        """Send one; waits while the caller does not read."""
        await self._write(framing.enveloped(codec.encoded(self._shape.codec, message)))

    async def end(self, error: ConnectError | None = None, *, last: Message | None = None) -> None:
        """Send the end; with an error, that; with a last message, after it."""
        head = b"" if last is None else framing.enveloped(codec.encoded(self._shape.codec, last))
        async with self._turn:
            await self._prepare()
            await self.response.write_eof(head + framing.enveloped(end_of_stream(error), framing.END_OF_STREAM))

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            await self._prepare()
            await self.response.write(data)

    async def _prepare(self) -> None:
        if not self.response.prepared:
            await self.response.prepare(self._request)


async def refused(request: web.Request, error: ConnectError, *, streams: bool) -> web.StreamResponse:
    """Answer a call with an error before there is any answer, as the kind of call wants it."""
    if not streams:
        return refusal(error)
    try:
        shape = codec.shape_of(request.headers.get("Content-Type", ""), streams=True)
    except ConnectError:
        return web.Response(status=415)
    answers = Answers(request, shape)
    await answers.end(error)
    return answers.response
