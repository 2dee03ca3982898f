"""Bodies of requests that are JSON objects, refused in E2B's words."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from aiohttp import web

from rollbox_bridges import bodies
from rollbox_bridges.e2b.words import Refusal


async def read(
    request: web.Request, known: Container[str] | None = None, most_bytes: int = bodies.MOST_BYTES
) -> dict[str, Any]:
    """As `bodies.json_object`.

    Raises:
        Refusal: it is no JSON object, too long, or has other fields, which would be ignored.
    """
    try:
        return await bodies.json_object(request, known, most_bytes)
    except bodies.BodyError as error:
        raise Refusal(error.status, error.message, "invalid_argument") from error
