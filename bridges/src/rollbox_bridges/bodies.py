"""Bodies of requests that are JSON objects."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from aiohttp import web

from rollbox_bridges.strict_json import parsed

MOST_BYTES: Final = 2**20


class BodyError(Exception):
    """A body is none.

    Attributes:
        status: of HTTP.
        message: one sentence.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


async def json_object(
    request: web.Request, known: Container[str] | None = None, most_bytes: int = MOST_BYTES
) -> dict[str, Any]:
    """Read a body; none is an empty object.

    Args:
        request: its request.
        known: the fields that it may have; None: any.
        most_bytes: how long it may be.

    Raises:
        BodyError: it is no JSON object, too long, or has other fields, which would be ignored.
    """
    data = bytearray()
    async for part in request.content.iter_any():
        data += part
        if len(data) > most_bytes:
            raise BodyError(413, f"the body is over the {most_bytes} bytes that are taken")
    try:
        body = parsed(data) if data else {}
    except ValueError as error:
        raise BodyError(400, f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BodyError(400, "the body is not a JSON object")
    for name in body:
        if known is not None and name not in known:
            raise BodyError(400, f"the field {name!r} is not known here, and would be ignored")
    return body
