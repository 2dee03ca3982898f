"""A create whose program dies while it waits: nothing of it is left but what the server has begun."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit


@asynccontextmanager
async def abandoned_create(url: str, api_key: str, spec: Mapping[str, Any], *, key: str) -> AsyncIterator[None]:
    """A create with a key that is under way while the block runs, and whose connection breaks at its end."""
    place, body = urlsplit(url), json.dumps(spec).encode()
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    head = (
        f"POST /v1/sandboxes HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {api_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nIdempotency-Key: {key}\r\n\r\n"
    )
    try:
        writer.write(head.encode() + body)
        await writer.drain()
        yield
    finally:
        # As the kernel does for a process that was killed.
        writer.transport.abort()
